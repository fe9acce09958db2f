from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import dense, joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.testing import assert_matches_reference

missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def kernel(poses: Tensor, weight: Tensor, start: Tensor | None, gain: Tensor, offset: Tensor, iters: int) -> Tensor:
    return joined(dense("attention", poses, weight, parents=start, gain=gain, offset=offset, iters=iters))


def reference(poses: Tensor, weight: Tensor, start: Tensor | None, gain: Tensor, offset: Tensor, iters: int) -> Tensor:
    routed = ops.attention_routing(ops.vote(poses, weight), start, gain=gain, offset=offset, iters=iters)
    return joined(routed.capsules)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 3, 5), (3, 7, 1, 4, 4), (17, 33, 2, 5, 7), (16, 200, 10, 8, 16)])
def test_matches_reference(sizes: tuple[int, ...], started: bool, shared: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, children, parents, in_dim, out_dim = sizes
    poses = torch.randn(batch, children, in_dim)
    weight = 0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim)
    start = torch.randn(batch, parents, out_dim) if started else None
    for iters in (1, 3):
        assert_matches_reference(
            lambda *tensors, iters=iters: kernel(*tensors, iters=iters),
            lambda *tensors, iters=iters: reference(*tensors, iters=iters),
            [poses, weight, start, torch.randn(out_dim), torch.randn(out_dim)],
            dtype=dtype,
            factor=4,
        )


@needs_kernel
def test_without_gain_and_offset() -> None:
    poses, weight = torch.randn(3, 5, 4), torch.randn(5, 3, 4, 6)
    torch.testing.assert_close(
        dense("attention", poses, weight), ops.attention_routing(ops.vote(poses, weight)).capsules
    )


def test_errors_name_the_argument() -> None:
    poses, weight = torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6)
    with raises_about(ConfigError, "iters", "0"):
        dense("attention", poses, weight, iters=0)
    with raises_about(ShapeError, "parents", "(3, 6)"):
        dense("attention", poses, weight, parents=torch.zeros(3, 6))
    with raises_about(ShapeError, "gain", "(3,)"):
        dense("attention", poses, weight, gain=torch.zeros(3))
