from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import mask_capsules
from torchcaps.types import Capsules

CAPSULES = Capsules(torch.arange(1.0, 13.0).view(2, 3, 2), torch.tensor([[0.1, 0.9, 0.2], [0.7, 0.3, 0.6]]))


def test_mask_keeps_most_active_class() -> None:
    assert mask_capsules(CAPSULES).tolist() == [[[0, 0], [3, 4], [0, 0]], [[7, 8], [0, 0], [0, 0]]]


def test_mask_keeps_label() -> None:
    kept = mask_capsules(CAPSULES, torch.tensor([0, 2]))
    assert kept.tolist() == [[[1, 2], [0, 0], [0, 0]], [[0, 0], [0, 0], [11, 12]]]


def test_mask_batch_of_one() -> None:
    for sample in (0, 1):
        alone = Capsules(*(part[sample : sample + 1] for part in CAPSULES))
        assert torch.equal(mask_capsules(alone)[0], mask_capsules(CAPSULES)[sample])


@pytest.mark.parametrize("labels", [None, torch.tensor([1, 1])])
def test_gradient(labels: torch.Tensor | None) -> None:
    poses = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    activations = CAPSULES.activations
    assert torch.autograd.gradcheck(lambda p: mask_capsules(Capsules(p, activations), labels), poses)


@pytest.mark.parametrize("shape", [(3,), (2, 3), ()])
def test_labels_of_wrong_batch_size(shape: tuple[int, ...]) -> None:
    with raises_about(ShapeError, "labels"):
        mask_capsules(CAPSULES, torch.zeros(shape, dtype=torch.long))
