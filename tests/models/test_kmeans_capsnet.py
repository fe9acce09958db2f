from __future__ import annotations

import torch

from torchcaps.data import load_data, to_float
from torchcaps.models import KMeansCapsNet, create_model
from torchcaps.models.cnn import conv_stem
from torchcaps.nn import KMeansRouting, MarginLoss


def make(**options: object) -> KMeansCapsNet:
    torch.manual_seed(0)
    model = create_model("kmeans_capsnet", **options)  # pyright: ignore[reportArgumentType]
    assert isinstance(model, KMeansCapsNet)
    return model


def test_parameters_and_sizes() -> None:
    model = make()
    stem = sum(parameter.numel() for parameter in conv_stem((1, 28, 28)).parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == stem + 10 * 128 * 16 == 279_488
    assert isinstance(model.head.routing, KMeansRouting)
    assert model.features(torch.rand(2, 1, 28, 28)).poses.shape == (2, 8, 8, 1, 128)
    assert model(torch.rand(2, 1, 28, 28)).poses.shape == (2, 10, 16)


@torch.no_grad()
def test_other_image_sizes() -> None:
    model = make(image_shape=(1, 28, 28), num_classes=4).eval()
    for shape in ((14, 14), (28, 56), (40, 40), (33, 29)):
        images = torch.rand(2, 1, *shape)
        out = model(images)
        assert out.poses.shape == (2, 4, 16)
        torch.testing.assert_close(model.trace(images).routed.poses, out.poses)


@torch.no_grad()
def test_weights_are_independent_of_size() -> None:
    small = make(image_shape=(1, 14, 14))
    large = make(image_shape=(1, 64, 28))
    large.load_state_dict(small.state_dict())
    images = torch.rand(2, 1, 20, 20)
    assert torch.equal(small(images).poses, large(images).poses)


def test_other_routers() -> None:
    for routing in ("dynamic", "uniform", "attention", "self_attention", "em", "kuramoto"):
        model = make(image_shape=(1, 16, 16), num_classes=3, routing=routing)
        assert model(torch.rand(2, 1, 17, 18)).activations.isfinite().all()


def two_digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_data("digits", "train")
    chosen = ((data.labels == 0) | (data.labels == 1)).nonzero().squeeze(1)[:32]
    return to_float(data.images[chosen][:, :, 4:24, 4:24]), data.labels[chosen]


def test_learns_two_digits() -> None:
    images, labels = two_digits()
    model, loss = make(image_shape=(1, 20, 20), num_classes=2), MarginLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(26):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.9  # pyright: ignore
