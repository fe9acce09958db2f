from __future__ import annotations

from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps import create_model
from torchcaps.errors import ShapeError
from torchcaps.models import StackedCapsNet


def size(name: str, shape=(1, 28, 28), classes: int = 10, **options: Any) -> int:
    with torch.device("meta"):
        return sum(weight.numel() for weight in create_model(name, shape, classes, **options).parameters())


@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 10), ((1, 28, 28), 4), ((3, 32, 32), 20)])
@pytest.mark.parametrize("decoder", ["deconv", "none"])
def test_as_many_parameters_as_the_capsules(shape, classes, decoder):
    ours, capsules = (size(name, shape, classes, decoder=decoder) for name in ("cnn_matched", "capsnet_small"))
    # One more matrix: the scores of the classes.
    assert ours - capsules == classes * 16 * classes + classes
    assert ours / capsules < 1.01
    assert size("cnn_matched", shape, classes, decoder=decoder, squashed=True) == capsules


def test_same_convolutions_as_the_capsules():
    shapes = [
        [weight.shape for name, weight in create_model(model).named_parameters() if name[:4] in ("stem", "prim")]
        for model in ("cnn_matched", "capsnet_small")
    ]
    assert shapes[0] == shapes[1]


def test_activations():
    images = torch.rand(3, 1, 28, 28)
    plain, squashed = create_model("cnn_matched"), create_model("cnn_matched", squashed=True)
    assert torch.allclose(plain(images).activations.sum(1), torch.ones(3))
    found = squashed(images)
    assert torch.allclose(found.activations, found.poses.norm(dim=-1))
    assert (plain.default_loss, squashed.default_loss) == ("likelihood", "margin")


def test_too_small_images():
    with raises_about(ShapeError, "image_shape", "16"):
        create_model("cnn_matched", (1, 16, 16), 10)
    with raises_about(ShapeError, "image_shape", "8"):
        create_model("cnn_matched", (1, 8, 8), 10, kernel=3)
    assert create_model("cnn_matched", (1, 9, 9), 10, kernel=3, decoder=None)(torch.rand(1, 1, 9, 9))


def test_shared_matrices_and_small_kernels():
    assert size("capsnet_small", shared=True, decoder="none") == size("capsnet_small", decoder="none") - 143 * 8 * 160
    assert create_model("capsnet_small", kernel=3)(torch.rand(2, 1, 28, 28)).poses.shape == (2, 10, 16)


@pytest.mark.parametrize("depth", [1, 3])
def test_stacked_layers(depth):
    model = create_model("stacked_capsnet", depth=depth)
    assert isinstance(model, StackedCapsNet)
    assert model.features(torch.rand(2, 1, 28, 28)).poses.shape == (2, 16, 8)
    assert model.trace(torch.rand(2, 1, 28, 28)).coupling.shape[-2:] == (16, 10)
