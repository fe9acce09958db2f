from __future__ import annotations

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.viz import gains
from torchcaps.viz._style import ACCENT, MUTED, WARM

ROWS = [
    {"name": "better", "gain": 3.0, "margin": 1.0, "outdated": False},
    {"name": "equal", "gain": -0.5, "margin": 1.0, "outdated": True},
    {"name": "worse", "gain": -4.0, "margin": 1.5, "outdated": False},
]


def test_points_margins_and_colours():
    figure = gains(ROWS)
    figure.canvas.draw()
    (axes,) = figure.axes
    bars = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    points = [bar.lines[0] for bar in bars]
    assert [np.asarray(line.get_xdata()).tolist() for line in points] == [[3.0], [-0.5], [-4.0]]
    assert [line.get_color() for line in points] == [ACCENT, MUTED, WARM]
    ends = [np.asarray(bar.lines[2][0].get_segments()[0])[:, 0].tolist() for bar in bars]
    assert ends == [[2.0, 4.0], [-1.5, 0.5], [-5.5, -2.5]]
    assert [text.get_text() for text in axes.texts] == ["+3.00", "-0.50, earlier recipe", "-4.00"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["better", "equal", "worse"]
    low, high = axes.get_xlim()
    assert low < -5.5
    assert high > 4


@pytest.mark.parametrize("gain", [0.0, -2.0])
def test_one_row(gain):
    figure = gains([{"name": "a", "gain": gain, "margin": 0.0, "outdated": False}])
    figure.canvas.draw()
    assert figure.axes[0].get_xlim()[1] > 0


def test_nothing_to_draw():
    with raises_about(ConfigError, "rows", "0"):
        gains([])
