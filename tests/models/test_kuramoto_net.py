from __future__ import annotations

import math

import torch

from torchcaps.data import load_data, to_float
from torchcaps.models import KuramotoNet, create_model
from torchcaps.nn import CrossEntropyLoss


def make(**options: object) -> KuramotoNet:
    torch.manual_seed(0)
    model = create_model("kuramoto_net", **options)  # pyright: ignore[reportArgumentType]
    assert isinstance(model, KuramotoNet)
    return model


def test_parameters() -> None:
    assert sum(parameter.numel() for parameter in make().parameters()) == 71_122


@torch.no_grad()
def test_other_image_sizes() -> None:
    model = make(num_classes=3).eval()
    for shape in ((1, 1), (28, 56), (33, 29)):
        assert model(torch.rand(2, 1, *shape)).activations.shape == (2, 3)


@torch.no_grad()
def test_phases_of_every_iteration() -> None:
    model = make(iters=4).eval()
    phases = model.phases(torch.rand(2, 1, 28, 28))
    assert phases.shape == (5, 2, 8, 28, 28)
    assert phases.abs().max() <= math.pi
    # All oscillators of a channel start together, and the image drives them apart.
    assert phases[0].std(dim=(0, 2, 3)).max() < 1e-5
    assert phases[-1].std(dim=(0, 2, 3)).min() > 0.01


def test_more_dimensions() -> None:
    model = make(dim=4, iters=1)
    assert model.phases(torch.rand(1, 1, 9, 9)).shape == (2, 1, 8, 9, 9)


def test_learns_digits() -> None:
    data = load_data("digits", "train")
    images, labels = to_float(data.images[:64, :, 4:24, 4:24]), data.labels[:64]
    model, loss = make(iters=2), CrossEntropyLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(15):
        optimiser.zero_grad()
        value = loss(model(images), labels)
        value.backward()
        optimiser.step()
    # Chance is 2.3.
    assert value < 1.2  # pyright: ignore
