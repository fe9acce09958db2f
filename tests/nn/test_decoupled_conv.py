from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from torch.nn import functional as F

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import DecoupledConv2d
from torchcaps.ops import decoupled_conv2d
from torchcaps.ops.decoupled import Angle, Magnitude
from torchcaps.testing import assert_matches_reference

MAGNITUDES, ANGLES = get_args(Magnitude), get_args(Angle)


def test_reference_in_plain_python() -> None:
    torch.manual_seed(0)
    maps, weight = torch.randn(1, 2, 4, 4, dtype=torch.float64), torch.randn(3, 2, 2, 2, dtype=torch.float64)
    patch, kernel = maps[0, :, 1:3, 2:4].flatten().tolist(), weight[1].flatten().tolist()
    norm, length = math.hypot(*patch), math.hypot(*kernel)
    cosine = sum(a * b for a, b in zip(patch, kernel, strict=True)) / norm / length
    h = {"linear": norm, "sphere": 1.0, "ball": min(norm, 2.0) / 2, "tanh": math.tanh(norm / 2)}
    g = {
        "cosine": cosine,
        "linear": 1 - 2 * math.acos(cosine) / math.pi,
        "square_cosine": math.copysign(cosine**2, cosine),
    }
    for magnitude in MAGNITUDES:
        for angle in ANGLES:
            out = decoupled_conv2d(maps, weight, magnitude=magnitude, angle=angle, radius=2.0)
            assert float(out[0, 1, 1, 2]) == pytest.approx(h[magnitude] * g[angle], abs=1e-9)


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_layer_matches_reference(magnitude: Any, angle: Any) -> None:
    torch.manual_seed(0)
    layer = DecoupledConv2d(3, 4, 3, stride=2, padding=1, magnitude=magnitude, angle=angle, radius=3.0)
    options: dict[str, Any] = {"magnitude": magnitude, "angle": angle, "radius": 3.0, "stride": 2, "padding": 1}

    def run(maps: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (maps,))

    def reference(maps: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return decoupled_conv2d(maps, weight, **options)

    assert_matches_reference(run, reference, [torch.randn(2, 3, 8, 7), layer.weight], factor=8)


def test_linear_and_cosine_is_a_convolution() -> None:
    torch.manual_seed(0)
    layer = DecoupledConv2d(3, 4, 3, magnitude="linear", angle="cosine")
    maps = torch.randn(2, 3, 6, 6)
    lengths = layer.weight.flatten(1).norm(dim=1)[:, None, None]
    torch.testing.assert_close(layer(maps) * lengths, F.conv2d(maps, layer.weight), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("magnitude", ["sphere", "ball", "tanh"])
@pytest.mark.parametrize("angle", ANGLES)
def test_bounded_whatever_the_input(magnitude: Any, angle: Any) -> None:
    torch.manual_seed(0)
    layer = DecoupledConv2d(3, 4, 3, magnitude=magnitude, angle=angle)
    assert float(layer(1e4 * torch.randn(2, 3, 6, 6)).detach().abs().max()) <= 1 + 1e-5


def test_sphere_ignores_contrast() -> None:
    torch.manual_seed(0)
    layer = DecoupledConv2d(3, 4, 3, magnitude="sphere")
    maps = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(layer(7 * maps), layer(maps))


@pytest.mark.parametrize("angle", ANGLES)
def test_empty_patches_are_finite(angle: Any) -> None:
    layer = DecoupledConv2d(3, 4, 3, angle=angle)
    maps = torch.zeros(1, 3, 5, 5, requires_grad=True)
    out = layer(maps)
    (grad,) = torch.autograd.grad(out.sum(), maps)
    assert out.isfinite().all()
    assert grad.isfinite().all()


@pytest.mark.parametrize(("name", "value"), [("magnitude", "cube"), ("angle", "sine"), ("radius", 0.0), ("stride", 0)])
def test_options_out_of_range(name: str, value: Any) -> None:
    with raises_about(ConfigError, f"{name}:", f"{value}"):
        DecoupledConv2d(3, 4, 3, **{name: value})
