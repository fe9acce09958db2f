from __future__ import annotations

import numpy as np
import pytest

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError


def test_one_column_gives_bars():
    (axes,) = viz.protocol(["familiar", "novel"], ["accuracy"], [[0.9], [0.75]], "A question?").axes
    first, second = (bar.get_extents().width for bar in axes.patches)
    assert second / first == pytest.approx(0.75 / 0.9)
    assert [text.get_text() for text in axes.texts] == ["90.00%", "75.00%"]
    assert axes.get_title("left") == "A question?"


def test_several_columns_give_curves():
    (axes,) = viz.protocol(list("abcdef"), ["0", "1"], [[0.9, 0.1 * k] for k in range(6)], column_axis="noise").axes
    assert np.asarray(axes.lines[3].get_ydata()).tolist() == [0.9, pytest.approx(0.3)]
    assert axes.get_xlabel() == "noise"
    # With more lines than colours the line styles differ.
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 6


def test_row_count_mismatch():
    with raises_about(ShapeError, "accuracies", "[1]"):
        viz.protocol(["a", "b"], ["accuracy"], [[0.5]])


def test_columns_without_an_axis_give_groups_of_bars():
    (axes,) = viz.protocol(["a", "b"], ["AUROC", "FPR"], [[0.9, 0.2], [0.8, 0.4]]).axes
    assert len(axes.patches) == 4
    assert [text.get_text() for text in axes.texts] == ["90.00%", "80.00%", "20.00%", "40.00%"]
