from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import PrimaryCaps2d
from torchcaps.ops import squash


def numbered(caps: int, dim: int, height: int, width: int) -> tuple[PrimaryCaps2d, Tensor]:
    """A layer that copies its channels, and features that encode their channel and position."""
    layer = PrimaryCaps2d(caps * dim, caps, dim, kernel_size=1, stride=1)
    nn.init.zeros_(layer.conv.weight)
    nn.init.dirac_(layer.conv.weight)
    assert layer.conv.bias is not None
    nn.init.zeros_(layer.conv.bias)
    channel = torch.arange(1, caps * dim + 1).view(-1, 1, 1)
    row, column = torch.arange(height).view(1, -1, 1), torch.arange(width).view(1, 1, -1)
    return layer, (channel * 1e-2 + row * 1e-4 + column * 1e-6).unsqueeze(0)


def test_capsule_is_channels_of_one_type() -> None:
    layer, features = numbered(caps=3, dim=4, height=5, width=6)
    poses = layer(features).poses
    assert poses.shape == (1, 5, 6, 3, 4)
    for row, column, kind in [(0, 0, 0), (1, 2, 1), (4, 5, 2)]:
        expected = squash(features[0, kind * 4 : kind * 4 + 4, row, column])
        torch.testing.assert_close(poses[0, row, column, kind], expected)


def test_activations_are_lengths() -> None:
    out = PrimaryCaps2d(2, 3, 4, kernel_size=3, stride=2)(torch.randn(2, 2, 9, 8))
    assert out.activations.shape == (2, 4, 3, 3)
    torch.testing.assert_close(out.activations, out.poses.square().sum(-1).sqrt())


def test_gradient() -> None:
    layer = PrimaryCaps2d(2, 2, 3, kernel_size=2, stride=1).double()
    features = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: tuple(layer(x)), (features, *layer.parameters()))


def test_wrong_axes() -> None:
    with raises_about(ShapeError, "features", "(2, 9, 9) (3 axes)"):
        PrimaryCaps2d(2, 3, 4)(torch.zeros(2, 9, 9))


@pytest.mark.parametrize("form", ["standard", "half", "exponential"])
def test_squash_form(form) -> None:
    torch.manual_seed(0)
    layer = PrimaryCaps2d(3, 2, 4, kernel_size=3, stride=1, squash=form)
    features = torch.randn(2, 3, 5, 5)
    maps = layer.conv(features).permute(0, 2, 3, 1).unflatten(-1, (2, 4))
    torch.testing.assert_close(layer(features).poses, squash(maps, form=form))
    with raises_about(ConfigError, "squash", "'cubic'"):
        PrimaryCaps2d(3, 2, 4, squash="cubic")  # pyright: ignore[reportArgumentType]
