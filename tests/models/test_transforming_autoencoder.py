from __future__ import annotations

from typing import Any

import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import TransformingAutoencoder, create_model
from torchcaps.ops.images import shift as shift_images


def make(**options: Any) -> TransformingAutoencoder:
    torch.manual_seed(0)
    model = create_model("transforming_autoencoder", (1, 28, 28), 10, **options)
    assert isinstance(model, TransformingAutoencoder)
    return model


def test_sizes_of_paper() -> None:
    model = make()
    out = model(torch.rand(2, 1, 28, 28))
    assert out.poses.shape == (2, 30, 2)
    assert out.activations.shape == (2, 30)
    recognition = 784 * 300 + 300 + 30 * (10 * 3 + 3)
    generation = 30 * (2 * 20 + 20 + 20 * 784 + 784)
    assert sum(parameter.numel() for parameter in model.parameters()) == recognition + generation == 732_210


@torch.no_grad()
def test_shift_is_added_to_position_only() -> None:
    model, images = make(), torch.rand(2, 1, 28, 28)
    shift = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    moved = model.transform(images, shift)
    assert not torch.allclose(moved, model.transform(images, torch.zeros(2, 2)))
    # A capsule that finds its entity at the shifted position paints the same without a shift.
    model.read_bias.data[:, :2] += shift[0]
    torch.testing.assert_close(model.transform(images, torch.zeros(2, 2))[0], moved[0])


@torch.no_grad()
def test_inactive_capsule_paints_nothing() -> None:
    model = make(capsules=2)
    model.read_bias[:, 2] = -200.0
    assert not model.transform(torch.rand(1, 1, 28, 28), torch.zeros(1, 2)).any()


def test_shifts_are_whole_pixels_within_bounds() -> None:
    shift = make(max_shift=3).sample_shift(500, torch.Generator().manual_seed(0))
    assert shift.unique().tolist() == list(range(-3, 4))
    assert not make(max_shift=0).sample_shift(5).any()


def test_learns_to_shift() -> None:
    torch.manual_seed(0)
    block = torch.zeros(64, 1, 12, 12)
    block[:, :, 4:8, 4:7] = 1
    images = shift_images(block, *torch.randint(-2, 3, (64, 2)).T)
    model = TransformingAutoencoder((1, 12, 12), 1, capsules=10)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        model.objective(images).backward()
        optimiser.step()
    shift = torch.tensor([[2, -1]]).expand(64, 2)
    with torch.no_grad():
        moved, target = model.transform(images, shift), shift_images(images, *shift.T)
        still = model.transform(images, torch.zeros_like(shift))
    # Much nearer to the moved image than what it paints without a shift, and than the image itself.
    error = (moved - target).square().sum()
    assert error < 0.5 * (still - target).square().sum()
    assert error < 0.4 * (images - target).square().sum()


def test_errors_name_the_argument() -> None:
    for name in ("capsules", "recognition", "generation"):
        with raises_about(ConfigError, f"{name}:", "at least 1", "got 0"):
            make(**{name: 0})
    with raises_about(ConfigError, "max_shift:", "at least 0", "got -1"):
        make(max_shift=-1)
    with raises_about(ShapeError, "shift:", "got (2,)"):
        make().transform(torch.zeros(2, 1, 28, 28), torch.zeros(2))
