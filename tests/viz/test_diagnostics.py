from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.viz import diagnostics


def layer(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"entropy": [1.0, 0.9, 0.7], "logit_change": [0.4, 0.2], "dead": 0.25, "starved": 0.0}
    return {"name": name, **usual, **changes}


def points(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def test_lines_and_bars_are_the_values():
    figure = diagnostics([layer("lower", entropy=[1.0, None, 0.5]), layer("head")], {"stem": 2.0, "head": 0.1})
    figure.canvas.draw()
    entropy, change, unused, gradients = figure.axes
    lower, head = map(points, entropy.lines)
    assert lower == ([1, 3], [1.0, 0.5])
    assert head == ([1, 2, 3], [1.0, 0.9, 0.7])
    assert points(change.lines[0]) == ([2, 3], [0.4, 0.2])
    assert [bar.get_height() for bar in unused.patches if isinstance(bar, Rectangle)] == [0.25, 0.25, 0.0, 0.0]
    assert [bar.get_width() for bar in gradients.patches if isinstance(bar, Rectangle)] == [2.0, 0.1]
    assert [text.get_text() for text in gradients.get_yticklabels()] == ["stem", "head"]


def test_one_iteration_has_no_logit_change():
    figure = diagnostics([layer("head", entropy=[0.8], logit_change=[])], {"head": None})
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[1].texts] == ["one iteration: no change"]
    assert not figure.axes[3].patches


def test_largest_gradients_in_network_order():
    norms = {f"layer{number}": 1.0 + number % 7 for number in range(30)}
    figure = diagnostics([layer("head")], norms)
    shown = [text.get_text() for text in figure.axes[3].get_yticklabels()]
    assert len(shown) == 12
    assert shown == sorted(shown, key=lambda name: int(name[5:]))


def test_no_layers():
    with raises_about(ConfigError, "layers", "got 0"):
        diagnostics([], {})
