from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import dense, joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.ops import _native
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def reference(poses: Tensor, weight: Tensor, **options) -> Capsules:
    return ops.kmeans_routing(ops.vote(poses, weight), **options).capsules


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 3, 5), (3, 7, 1, 4, 4), (17, 33, 2, 5, 7), (16, 200, 10, 8, 16)])
def test_matches_reference(sizes: tuple[int, ...], shared: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, children, parents, in_dim, out_dim = sizes
    poses = torch.randn(batch, children, in_dim)
    weight = 0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim)
    for options in ({}, {"iters": 1}, {"iters": 5, "inverse_temp": 2.0}):
        assert_matches_reference(
            lambda *tensors, options=options: joined(dense("kmeans", *tensors, **options)),
            lambda *tensors, options=options: joined(reference(*tensors, **options)),
            [poses, weight],
            dtype=dtype,
            factor=4,
        )


@needs_kernel
def test_zero_votes_have_finite_gradients() -> None:
    poses, weight = torch.zeros(2, 5, 4, requires_grad=True), torch.randn(5, 3, 4, 6, requires_grad=True)
    for grad in torch.autograd.grad(joined(dense("kmeans", poses, weight)).sum(), (poses, weight)):
        assert grad.isfinite().all()


def test_errors_name_the_argument() -> None:
    poses, weight = torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6)
    with raises_about(ConfigError, "iters", "0"):
        dense("kmeans", poses, weight, iters=0)
    with raises_about(ConfigError, "inverse_temp", "-1"):
        dense("kmeans", poses, weight, inverse_temp=-1)
