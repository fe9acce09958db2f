from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import ConfigError
from torchcaps.evaluation import by_parts, scramble, scrambled
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


def patches(images: torch.Tensor, grid: int) -> list[list[bytes]]:
    """Return the patches of each image from left to right and top to bottom."""
    size = images.shape[-1] // grid
    cut = [
        [image[:, r * size : (r + 1) * size, c * size : (c + 1) * size] for r in range(grid) for c in range(grid)]
        for image in images
    ]
    return [[bytes(patch.contiguous().numpy()) for patch in each] for each in cut]


@pytest.mark.parametrize("grid", [2, 3, 4])
def test_every_patch_has_a_new_place(grid):
    images = torch.randint(0, 256, (40, 3, 26, 26), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    moved = scramble(images, grid)
    for before, after in zip(patches(images, grid), patches(moved, grid), strict=True):
        assert sorted(before) == sorted(after)
        assert all(one != other for one, other in zip(before, after, strict=True))
    rest = 26 // grid * grid
    assert torch.equal(moved[..., rest:], images[..., rest:])
    assert torch.equal(scramble(images[:7], grid), moved[:7])
    assert len({tuple(map(before.index, after)) for before, after in zip(
        patches(images, grid), patches(moved, grid), strict=True)}) > 4  # fmt: skip


@pytest.mark.parametrize("grid", [0, 1, 29])
def test_grid_out_of_range(grid):
    with raises_about(ConfigError, "grid", str(grid)):
        scramble(torch.zeros(1, 1, 28, 28), grid)


def test_scrambled_faces_are_drawn():
    faces = load_data("faces", "test")
    assert scrambled(faces).batch([3]).meta["order"].item() > 0


class Top(ImageModel):
    """Its activation is the mean brightness of the upper half of an image."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10)
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> Capsules:
        mean = self.weight * images[:, :, :14].mean((1, 2, 3))
        activations = torch.zeros(len(images), 10).index_fill(1, torch.tensor([3]), 1) * mean[:, None]
        return Capsules(activations[..., None].expand(-1, -1, 16), activations)


def test_false_wholes_by_hand(digits: ImageDataset):
    model, parts = Top(), scrambled(digits)
    (row,) = by_parts(model, digits, parts).rows
    whole, new = (model(each.images / 255).activations.amax(1).sort().values for each in (digits, parts))
    threshold = whole[int(0.05 * 59)]
    assert row.count == len(parts) == 60
    assert row.accuracies[1] == pytest.approx((new >= threshold).float().mean().item(), abs=1 / 60)
