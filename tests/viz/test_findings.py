from __future__ import annotations

import pytest

from torchcaps import viz
from torchcaps.errors import ShapeError


def test_one_column_gives_bars():
    (axes,) = viz.findings(["familiar", "novel"], ["accuracy"], [[0.9], [0.75]], "A question?").axes
    assert [bar.get_width() for bar in axes.patches] == [0.9, 0.75]
    assert [text.get_text() for text in axes.texts] == ["90.00%", "75.00%"]
    assert axes.get_title("left") == "A question?"


def test_several_columns_give_curves():
    (axes,) = viz.findings(list("abcdef"), ["0", "1"], [[0.9, 0.1 * k] for k in range(6)]).axes
    assert [list(line.get_ydata()) for line in axes.lines][3] == [0.9, pytest.approx(0.3)]
    # With more lines than colours the style tells them apart.
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 6


def test_lines_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"accuracies: expected 2 lines of 1 values, .* got \[1\]"):
        viz.findings(["a", "b"], ["accuracy"], [[0.5]])
