from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import LOSSES, SpreadLoss
from torchcaps.types import Capsules


def classes(*activations: float) -> Capsules:
    return Capsules(torch.zeros(1, len(activations), 16), torch.tensor([activations]))


def test_sums_over_wrong_classes():
    loss = LOSSES["spread"](start=0.5, end=0.5)
    value = loss(classes(0.6, 0.5, 0.0), torch.tensor([0]))
    assert float(value) == pytest.approx((0.5 - 0.1) ** 2)
    assert float(loss(classes(1.0, 0.0, 0.0), torch.tensor([0]))) == 0


def test_margin_grows_only_in_training():
    loss = SpreadLoss(steps=10)
    margins = []
    for _ in range(12):
        margins.append(float(loss.margin))
        loss(classes(0.6, 0.5), torch.tensor([0]))
    assert margins == pytest.approx([0.2 + 0.07 * min(step, 10) for step in range(12)])
    loss.eval()
    before = int(loss.step)
    loss(classes(0.6, 0.5), torch.tensor([0]))
    assert int(loss.step) == before


def test_released_growth():
    loss = SpreadLoss(growth="released")
    values = []
    for step in (0, 200000, 1000000):
        loss.step.fill_(step)
        values.append(float(loss.margin))
    assert values == pytest.approx([0.2142, 0.595, 0.99], abs=1e-3)


def test_margin_is_in_state_dict():
    loss = SpreadLoss(steps=10)
    loss(classes(0.6, 0.5), torch.tensor([0]))
    resumed = SpreadLoss(steps=10)
    resumed.load_state_dict(loss.state_dict())
    assert resumed.margin == loss.margin > 0.2


def test_errors_name_the_argument():
    with raises_about(ConfigError, "growth", "'none'"):
        SpreadLoss(growth="none")  # pyright: ignore[reportArgumentType]
    given: list[dict[str, Any]] = [{"start": 0.7}, {"end": 0.8}, {"steps": 5}]
    for options in given:
        with raises_about(ConfigError, "growth", "'linear' where steps, start or end are given"):
            SpreadLoss(growth="released", **options)
    with raises_about(ConfigError, "steps", "0"):
        SpreadLoss(steps=0)
    with raises_about(ShapeError, "labels", "(1, 2)"):
        SpreadLoss()(classes(0.6, 0.5), torch.tensor([[1, 0]]))
