from __future__ import annotations

import pytest
import torch
from torch import nn

from raising import raises_about
from torchcaps.data import load_data, to_float
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import EfficientCapsNet, create_model
from torchcaps.models.efficient_capsnet import whole_map_capsules
from torchcaps.nn import MarginLoss, SelfAttentionRouting
from torchcaps.ops import squash


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_count_of_paper() -> None:
    assert parameters(create_model("efficient_capsnet", decoder=None)) == 161_824
    assert parameters(create_model("efficient_capsnet")) == 161_824 + 1_411_344


def test_parameter_count_of_residual() -> None:
    assert parameters(create_model("residual_capsnet", decoder=None)) == 251_648
    assert parameters(create_model("residual_capsnet", image_shape=(1, 36, 36))) < 500_000
    assert parameters(create_model("residual_capsnet", decoder=None, blocks=2)) == 251_648 + 2 * 295_424


@pytest.mark.parametrize("blocks", [-1, 1.0, True, 201])
def test_number_of_blocks_is_checked(blocks: object) -> None:
    with raises_about(ConfigError, "blocks:", f"got {blocks}"):
        create_model("residual_capsnet", blocks=blocks)


@pytest.mark.parametrize("name", ["efficient_capsnet", "residual_capsnet"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 11, 40)])
def test_always_sixteen_primary_capsules(name: str, shape: tuple[int, int, int]) -> None:
    model = create_model(name, image_shape=shape, num_classes=3).eval()
    assert isinstance(model, EfficientCapsNet)
    assert isinstance(model.head.routing, SelfAttentionRouting)
    capsules = model.features(torch.rand(2, *shape))
    assert capsules.poses.shape == (2, 16, 8)
    assert capsules.activations.max() < 1
    assert model.trace(torch.rand(2, *shape)).coupling.shape == (1, 2, 16, 3)


@pytest.mark.parametrize("bias", [True, False])
def test_full_map_is_depthwise_convolution(bias: bool) -> None:
    torch.manual_seed(0)
    conv, maps = nn.Conv2d(16, 16, (3, 5), groups=16, bias=bias), torch.rand(2, 16, 3, 5)
    poses = squash(conv(maps).view(2, 2, 8), form="exponential")
    capsules = whole_map_capsules(conv, maps)
    torch.testing.assert_close(capsules.poses, poses)
    torch.testing.assert_close(capsules.activations, poses.norm(dim=-1))


def test_other_routers() -> None:
    for routing in ("dynamic", "uniform", "kmeans"):
        model = create_model("efficient_capsnet", image_shape=(1, 12, 12), num_classes=3, routing=routing).eval()
        assert model(torch.rand(2, 1, 12, 12)).activations.isfinite().all()


def test_too_small_image_names_minimum() -> None:
    with raises_about(ShapeError, "image_shape:", "at least 11", "got (1, 10, 28)"):
        create_model("efficient_capsnet", image_shape=(1, 10, 28))


def test_residual_takes_any_size() -> None:
    model = create_model("residual_capsnet", image_shape=(1, 1, 5), num_classes=3, decoder=None).eval()
    assert model(torch.rand(2, 1, 1, 5)).poses.shape == (2, 3, 16)


@pytest.mark.parametrize("name", ["efficient_capsnet", "residual_capsnet"])
def test_learns_digits(name: str) -> None:
    torch.manual_seed(0)
    data = load_data("digits", "train")
    images, labels = to_float(data.images[:64]), data.labels[:64]
    model, loss = create_model(name, decoder=None), MarginLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(12):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.7  # pyright: ignore
