from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.viz import routing_curves
from torchcaps.viz._style import ACCENT, INK, MUTED

Row = tuple[int, str, int | None, str, float]


def table(*rows: Row) -> dict[str, list[Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(("epoch", "layer", "iteration", "measure", "value"), columns, strict=True))


def epoch(number: int, entropy: float = 0.8, **changes: float) -> list[Row]:
    """A network with a stem, a layer of one pass below the classes, and classes with two iterations."""
    shares = {"changed": 0.25, "dead": 0.5, "starved": 0.9, **changes}
    return [
        (number, "lower", 1, "entropy", 0.99),
        (number, "head", 1, "entropy", 1.0),
        (number, "head", 2, "entropy", entropy),
        (number, "head", 2, "logit_change", 0.3),
        *((number, "head", None, name, value) for name, value in shares.items()),
        (number, "stem.0", None, "gradient_norm", 3.0),
        (number, "stem.1", None, "gradient_norm", 4.0),
        (number, "head", None, "gradient_norm", 0.1),
        (number, "stem.0", None, "gradient_coherence", 0.5),
        (number, "stem.1", None, "gradient_coherence", -0.25),
        (number, "head", None, "gradient_coherence", 0.75),
    ]


def points(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def test_lines_are_the_values_over_the_epochs():
    figure = routing_curves(table(*epoch(1), *epoch(2, 0.6, changed=0.75), *epoch(3, float("nan"))))
    figure.canvas.draw()
    entropy, change, changed, dead, gradients, coherence = figure.axes
    assert [points(line) for line in entropy.lines] == [
        ([1, 2, 3], [0.99] * 3),
        ([1, 2, 3], [1.0] * 3),
        ([1, 2], [0.8, 0.6]),
    ]
    assert [line.get_color() for line in entropy.lines] == [MUTED, ACCENT, ACCENT]
    # The last iteration is in full colour, and the only one in the legend.
    assert (entropy.lines[1].get_alpha() or 1) < 1
    assert entropy.lines[2].get_alpha() == 1
    legend = entropy.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["lower", "head"]
    assert [points(line) for line in change.lines] == [([1, 2, 3], [0.3] * 3)]
    assert [points(line)[1] for line in changed.lines] == [[0.25, 0.75, 0.25]]
    assert [points(line)[1] for line in dead.lines] == [[0.5] * 3]
    assert changed.get_ylim()[1] > 0.75
    assert [(line.get_color(), points(line)[1]) for line in gradients.lines] == [(ACCENT, [0.1] * 3), (INK, [5.0] * 3)]
    assert gradients.get_yscale() == "log"
    # The least coherent of the layers without routing stands for all of them.
    assert [(line.get_color(), points(line)[1]) for line in coherence.lines] == [
        (ACCENT, [0.75] * 3),
        (INK, [-0.25] * 3),
    ]
    assert coherence.get_ylim()[0] < -0.25


def test_one_iteration_and_zero_gradient():
    figure = routing_curves(table((1, "head", 1, "entropy", 0.9), (1, "head", None, "gradient_norm", 0.0)))
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[1].texts] == ["one iteration: no change"]
    assert figure.axes[4].get_yscale() == "linear"
    assert figure.axes[4].get_legend() is None
    assert [text.get_text() for text in figure.axes[5].texts] == ["not measured"]


def test_nothing_to_draw():
    with raises_about(ConfigError, "table:", "epoch, layer", "none"):
        routing_curves({})
    with raises_about(ConfigError, "table", "none"):
        routing_curves(table((1, "stem", None, "gradient_norm", 1.0)))
