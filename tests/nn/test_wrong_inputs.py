"""Wrong inputs of losses, decoders and models are errors that name the argument and the value."""

from __future__ import annotations

import pytest
import torch

import torchcaps as tc
from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import LOSSES
from torchcaps.types import Capsules

SCORES = Capsules(torch.rand(3, 5, 1), torch.rand(3, 5))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_losses_take_capsules(name: str) -> None:
    with raises_about(ShapeError, "capsules:", "Tensor (3, 5)"):
        LOSSES[name]()(SCORES.activations, torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("wrong", [5, -1])
def test_class_numbers_out_of_range(name: str, wrong: int) -> None:
    with raises_about(ShapeError, "labels:", "0 to 4", wrong):
        LOSSES[name]()(SCORES, torch.tensor([0, 1, wrong]))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_compiled_losses_do_not_read_labels(name: str) -> None:
    loss = LOSSES[name]().eval()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    labels = torch.tensor([0, 1, 4])
    torch.testing.assert_close(compiled(SCORES, labels), loss(SCORES, labels))


def test_models_take_floating_point_images() -> None:
    with raises_about(ShapeError, "images:", "torch.uint8", "to_float"):
        tc.create_model("capsnet_small")(torch.zeros(1, 1, 28, 28, dtype=torch.uint8))


def test_decoders_take_capsules() -> None:
    with raises_about(ShapeError, "capsules:", "Tensor (2, 10, 16)"):
        tc.create_model("capsnet_small").decode(torch.zeros(2, 10, 16))  # pyright: ignore[reportArgumentType]


def test_only_public_names_of_the_data_package_are_listed() -> None:
    assert dir(tc.data) == sorted(tc.data.__all__)
