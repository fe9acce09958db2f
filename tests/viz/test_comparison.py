from __future__ import annotations

from typing import Any

import pytest

from torchcaps.errors import ConfigError
from torchcaps.viz import comparison


def row(name: str, mean: float, deviation: float | None) -> dict[str, Any]:
    value = {"mean": mean, "deviation": deviation, "count": 3}
    return {"router": name, "test_accuracy": value, "epoch_seconds": {**value, "mean": 10 * mean}}


def test_values_stand_beside_their_dots():
    figure = comparison([row("dynamic", 0.98, 0.004), row("em", 0.5, None)])
    figure.canvas.draw()
    left, right = figure.axes
    assert [text.get_text() for text in left.texts] == ["98.00 %", "50.00 %"]
    assert [text.get_text() for text in right.texts] == ["9.8 s", "5.0 s"]
    assert [text.get_text() for text in left.get_yticklabels()] == ["dynamic", "em"]
    assert left.get_xlabel() == "mean and deviation of 3 runs"
    # One of two has a deviation to draw.
    assert len(left.collections) == 1


def test_a_router_that_failed():
    failed = {"router": "em", "test_accuracy": None, "epoch_seconds": None}
    figure = comparison([failed])
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[0].texts] == ["failed"]
    assert figure.axes[0].get_xlabel() == ""


def test_no_rows():
    with pytest.raises(ConfigError, match="rows: expected at least one router, got none"):
        comparison([])
