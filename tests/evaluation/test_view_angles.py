from __future__ import annotations

import pytest
import torch

from torchcaps.data import InMemoryDataset
from torchcaps.data.coil20 import CLASS_NAMES
from torchcaps.evaluation import by_angle, nearest_angles
from torchcaps.evaluation.view_angles import directions
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


def views(azimuths: list[int], polar: list[int] | None = None) -> InMemoryDataset:
    count = len(azimuths)
    # The brightness of an image is its azimuth.
    images = torch.tensor(azimuths).view(-1, 1, 1, 1).expand(-1, 1, 8, 8) * 255 // 360
    meta = {"azimuth": torch.tensor(azimuths), **({} if polar is None else {"polar": torch.tensor(polar)})}
    labels = torch.zeros(count, dtype=torch.int64)
    return InMemoryDataset("coil20", "test", images.to(torch.uint8), labels, CLASS_NAMES, "made", meta)


class Front(ImageModel):
    """Recognises an object from azimuths below 130 degrees."""

    def __init__(self) -> None:
        super().__init__((1, 8, 8), 20)
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> Capsules:
        known = (360 * images.mean((1, 2, 3)) < 130).float()
        activations = torch.zeros(len(images), 20).index_fill(1, torch.tensor([5]), 0.5)
        activations[:, 0] = known
        return Capsules(activations[..., None], activations)


def test_angles_on_a_turntable_and_on_a_sphere():
    train = directions(views([0, 90]))
    assert nearest_angles(directions(views([100, 45, 270, 350])), train).round().tolist() == [10, 45, 90, 10]
    above = directions(views([-1, 0, 45], [0, 45, 90]))
    assert nearest_angles(above, train).round().tolist() == [90, 45, 45]


def test_error_over_the_angle():
    train, familiar, novel = views([0, 45, 90]), views([5, 85]), views([100, 110, 120, 125, 150, 160, 180, 200])
    result = by_angle(Front(), (train, familiar, novel))
    rows = {row.name: (row.count, row.accuracies[0]) for row in result.rows}
    assert rows["familiar"] == (2, 0)
    assert rows["novel"] == (8, 0.5)
    assert rows["up to 30°"] == (3, 0)
    assert rows["30° to 60°"] == (2, 0.5)
    assert rows["60° to 90°"] == (2, 1)
    (curve,) = result.curves
    assert curve.at[:4] == (10, 20, 30, 35)
    assert curve.lines["error"][:5] == pytest.approx((0, 0, 0, 0, 1))
