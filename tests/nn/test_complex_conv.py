from __future__ import annotations

import math

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import ComplexConv2d, ModulusReLU
from torchcaps.ops import complex_conv2d, from_complex, to_complex
from torchcaps.testing import assert_matches_reference


def turn(maps: torch.Tensor, angle: float) -> torch.Tensor:
    """Turn all phases by one angle."""
    return from_complex(to_complex(maps) * complex(math.cos(angle), math.sin(angle)))


def test_reference_is_complex_multiplication() -> None:
    torch.manual_seed(0)
    maps, weight = torch.randn(2, 6, 5, 5, dtype=torch.float64), torch.randn(2, 4, 3, 2, 2, dtype=torch.float64)
    out = to_complex(complex_conv2d(maps, weight))
    z, w = to_complex(maps), torch.complex(weight[0], weight[1])
    for row, column in ((0, 0), (2, 3), (3, 3)):
        patch = z[:, :, row : row + 2, column : column + 2]  # [B, C, 2, 2]
        expected = torch.stack([(patch * w[k]).sum(dim=(1, 2, 3)) for k in range(4)], dim=1)
        torch.testing.assert_close(out[:, :, row, column], expected)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), (3, 2)])
def test_layer_matches_reference(stride: int, padding: int) -> None:
    torch.manual_seed(0)
    layer = ComplexConv2d(3, 4, 3, stride=stride, padding=padding)

    def run(maps: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (maps,))

    def reference(maps: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return complex_conv2d(maps, weight, stride, padding)

    assert_matches_reference(run, reference, [torch.randn(2, 6, 8, 7), layer.weight], factor=4)


def test_turning_all_phases_turns_the_result() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(ComplexConv2d(3, 4, 3), ModulusReLU(4), ComplexConv2d(4, 2, 3)).double()
    maps = torch.randn(2, 6, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(layers(turn(maps, 1.1)), turn(layers(maps), 1.1), rtol=1e-6, atol=1e-8)


def test_modulus_relu_keeps_phases_and_cuts_magnitudes() -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, 6, 8, 8)
    before, after = to_complex(maps), to_complex(ModulusReLU(3)(10 * maps))
    left = after.abs() > 1e-3
    assert 0.1 < left.float().mean() < 0.95
    torch.testing.assert_close(after[left] / after[left].abs(), before[left] / before[left].abs(), rtol=1e-4, atol=1e-4)
    assert before.abs()[~left].max() < before.abs()[left].mean()


def test_variance_is_kept() -> None:
    torch.manual_seed(0)
    out = ComplexConv2d(32, 64, 3)(torch.randn(4, 64, 10, 10)).detach()
    assert float(out.std()) == pytest.approx(math.sqrt(2), rel=0.1)


def test_gradients_of_zeros_are_finite() -> None:
    maps = torch.zeros(1, 6, 4, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(ModulusReLU(3)(maps).sum(), maps)
    assert grad.isfinite().all()


def test_wrong_inputs() -> None:
    with raises_about(ShapeError, "maps", "6", "(1, 5, 4, 4)"):
        ComplexConv2d(3, 4, 3)(torch.zeros(1, 5, 4, 4))
    with raises_about(ShapeError, "maps", "(1, 5, 4, 4)"):
        to_complex(torch.zeros(1, 5, 4, 4))
    with raises_about(ConfigError, "kernel_size", "0"):
        ComplexConv2d(3, 4, 0)
