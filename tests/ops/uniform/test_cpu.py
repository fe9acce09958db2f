"""The C++ kernel of uniform routing in dense layers, compared with the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.ops import _native
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))


def route(backend: str, poses: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    children = Capsules(poses, torch.ones(poses.shape[:2], dtype=poses.dtype))
    return joined(ops.route(children, weight, "uniform", backend=backend, bias=bias, squash="half"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 3, 5), (3, 7, 1, 4, 4), (17, 33, 2, 5, 7), (16, 200, 10, 8, 16)])
def test_matches_reference(sizes: tuple[int, ...], shared: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, children, parents, in_dim, out_dim = sizes
    inputs = [
        torch.randn(batch, children, in_dim),
        0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim),
        torch.randn(parents, out_dim),
    ]
    kernel, reference = (lambda *tensors, name=name: route(name, *tensors) for name in ("cpu", "reference"))
    assert_matches_reference(kernel, reference, inputs, dtype=dtype, factor=4)


@pytest.mark.parametrize("shared", [False, True])
def test_without_children_the_bias_remains(shared: bool) -> None:
    weight = torch.randn(*(() if shared else (0,)), 3, 4, 6)
    poses, bias = torch.randn(2, 0, 4), torch.randn(3, 6)
    assert torch.equal(route("auto", poses, weight, bias), route("reference", poses, weight, bias))


def test_auto_takes_the_kernel() -> None:
    poses, weight, bias = torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6), torch.randn(3, 6)
    assert torch.equal(route("auto", poses, weight, bias), route("cpu", poses, weight, bias))
    with raises_about(ShapeError, "bias", (3, 6), (6, 3)):
        route("cpu", poses, weight, bias.T)
