from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.viz import comparison


def row(name: str, mean: float, deviation: float | None) -> dict[str, Any]:
    value = {"mean": mean, "std": deviation, "count": 3}
    return {"router": name, "test_accuracy": value, "epoch_seconds": {**value, "mean": 10 * mean}}


def test_values_are_annotated():
    figure = comparison([row("dynamic", 0.98, 0.004), row("em", 0.5, None)])
    figure.canvas.draw()
    left, right = figure.axes
    assert [text.get_text() for text in left.texts] == ["98.00 %", "50.00 %"]
    assert [text.get_text() for text in right.texts] == ["9.8 s", "5.0 s"]
    assert [text.get_text() for text in left.get_yticklabels()] == ["dynamic", "em"]
    assert left.get_xlabel() == "mean and standard deviation of 3 runs"
    # One of two has a deviation to draw.
    assert len(left.collections) == 1


def test_failed_router():
    failed = {"router": "em", "test_accuracy": None, "epoch_seconds": None}
    figure = comparison([failed])
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[0].texts] == ["failed"]
    assert figure.axes[0].get_xlabel() == ""


def test_optional_panels():
    value = {"mean": 0.5, "std": 0.1, "count": 3}
    whole = {
        **row("em", 0.9, 0.01),
        "tests": {"mnist": value},
        "memory_mb": 31.4,
        **dict.fromkeys(("entropy", "changed", "logit_change", "gradient_norm"), value),
        "dead": {**value, "mean": 0.0},
    }
    # One pass has no change of logits, and the memory could not be measured.
    other = {**whole, "router": "uniform", "memory_mb": None, "logit_change": None}
    figure = comparison([whole, other, {"router": "failed", "test_accuracy": None, "epoch_seconds": None}])
    figure.canvas.draw()
    found = {axes.get_title(loc="left"): [text.get_text() for text in axes.texts] for axes in figure.axes}
    assert found == {
        "Test accuracy": ["90.00 %", "90.00 %", "failed"],
        "On mnist": ["50.00 %", "50.00 %", "failed"],
        "Seconds per epoch": ["9.0 s", "9.0 s", "failed"],
        "Memory of a step": ["31 MB", "none", "failed"],
        "Entropy (1: uniform coupling)": ["0.50", "0.50", "failed"],
        "Predictions changed by routing": ["50.0 %", "50.0 %", "failed"],
        "Dead parents": ["0.0 %", "0.0 %", "failed"],
        "Logit change": ["0.500", "none", "failed"],
        "Gradient norm": ["0.5000", "0.5000", "failed"],
    }
    # Names are only at the left of each row of panels, the first row on top.
    names = [[text.get_text() for text in axes.get_yticklabels()] for axes in figure.axes]
    assert names == [["em", "uniform", "failed"], ["", "", ""], ["", "", ""]] * 3
    assert all(axes.yaxis_inverted() for axes in figure.axes)
    # Points at zero and the labels beside the points are inside of their panels.
    for axes in figure.axes:
        frame = axes.get_window_extent()
        for line in axes.lines:
            for x in np.asarray(line.get_xdata(), float):
                assert frame.x0 < axes.transData.transform((x, 0))[0] < frame.x1
        for text in axes.texts:
            assert text.get_window_extent().x1 <= frame.x1
        ticks = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
        ticks = [box for box in ticks if frame.x0 <= (box.x0 + box.x1) / 2 <= frame.x1]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(ticks))
    # Two images of a thousand do not look like a difference.
    low, high = figure.axes[0].get_xlim()
    assert high - low > 5


def test_no_rows():
    with raises_about(ConfigError, "rows", "got 0"):
        comparison([])
