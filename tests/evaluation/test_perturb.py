from __future__ import annotations

import torch

from raising import raises_about
from torchcaps import Capsules
from torchcaps.errors import ShapeError
from torchcaps.evaluation import OFFSETS, perturb
from torchcaps.models import ImageModel


def one_sample(model: ImageModel) -> Capsules:
    with torch.no_grad():
        return model(torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0)))


def test_offsets_of_paper() -> None:
    assert OFFSETS == (-0.25, -0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25)


def test_middle_column_is_unchanged(model: ImageModel) -> None:
    capsules = one_sample(model)
    images = perturb(model, capsules)
    assert images.shape == (16, 11, 1, 28, 28)
    torch.testing.assert_close(images[:, 5], model.decode(capsules).detach().expand(16, -1, -1, -1))


def test_one_dimension_of_one_class_changes(model: ImageModel) -> None:
    capsules = one_sample(model)
    images = perturb(model, capsules, label=4, offsets=[0.3])
    poses = capsules.poses.clone()
    poses[0, 4, 2] += 0.3
    expected = model.decode(Capsules(poses, capsules.activations), torch.tensor([4]))
    torch.testing.assert_close(images[2, 0], expected[0].detach())


def test_several_samples_are_refused(model: ImageModel) -> None:
    with raises_about(ShapeError, "capsules", (2, 10, 16)):
        perturb(model, Capsules(torch.zeros(2, 10, 16), torch.zeros(2, 10)))
    with raises_about(ShapeError, "label", 10):
        perturb(model, one_sample(model), label=10)
