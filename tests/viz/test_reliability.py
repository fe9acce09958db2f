from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.viz import reliability


def test_each_curve_has_its_points_and_its_name() -> None:
    figure = reliability({"after": [(0.5, 0.4, 1), (0.9, 0.95, 3)], "before": [(0.3, 0.9, 4)]})
    upper, lower = figure.axes
    _, after, before = upper.lines
    assert np.asarray(after.get_xydata()).tolist() == [[0.5, 0.4], [0.9, 0.95]]
    assert before.get_label() == "before"
    assert np.asarray(lower.lines[0].get_ydata()).tolist() == [0.25, 0.75]
    assert lower.get_ylim()[0] == 0
    # A mark of many images is larger.
    marks = upper.collections[0]
    assert isinstance(marks, PathCollection)
    small, large = marks.get_sizes()
    assert large > 2 * small


@pytest.mark.parametrize("curves", [{}, {"empty": []}])
def test_no_bins_are_refused(curves: dict) -> None:
    with raises_about(ConfigError, "curves", "got 0"):
        reliability(curves)
