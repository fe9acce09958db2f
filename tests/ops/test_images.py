from __future__ import annotations

import torch

from torchcaps.ops.images import shift


def test_each_image_has_its_own_shift() -> None:
    images = torch.rand(3, 2, 5, 6)
    moved = shift(images, torch.tensor([0, 2, -1]), torch.tensor([0, -1, 3]))
    assert torch.equal(moved[0], images[0])
    assert torch.equal(moved[1, :, 2:, :-1], images[1, :, :-2, 1:])
    assert moved[1, :, :2].abs().sum() == moved[1, :, :, -1].abs().sum() == 0
    assert torch.equal(moved[2, :, :-1, 3:], images[2, :, 1:, :-3])


def test_shift_beyond_the_edge_is_black() -> None:
    assert not shift(torch.ones(1, 1, 4, 4), torch.tensor([9]), torch.tensor([0])).any()
