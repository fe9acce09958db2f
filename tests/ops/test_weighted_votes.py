from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps.ops import _weighted_votes, vote
from torchcaps.ops._weighted_votes import weighted_votes
from torchcaps.testing import assert_matches_reference


def reference(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("jbi,bijd->bjd", share, vote(poses, weight))


def some(b: int, i: int, j: int, p: int, d: int, shared: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((j, b, i), (b, i, p), (j, p, d) if shared else (i, j, p, d))
    return [torch.randn(*shape, generator=generator) for shape in shapes]


SIZES = [(3, 7, 5, 3, 6), (1, 1, 1, 1, 1), (5, 33, 3, 4, 17), (2, 300, 10, 8, 16)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_error_is_within_sum_of_votes(
    size: tuple[int, ...], shared: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small chunk size: children come in several chunks, the last of them smaller.
    monkeypatch.setattr(_weighted_votes, "CACHED", 100)
    assert_matches_reference(weighted_votes, reference, some(*size, shared=shared), dtype=dtype, factor=4)  # pyright: ignore[reportArgumentType]


# A warning of torch about the product of votes in the reference.
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("shared", [False, True])
def test_half_precision(shared: bool) -> None:
    assert_matches_reference(weighted_votes, reference, some(2, 300, 10, 8, 16, shared=shared), dtype=torch.bfloat16)


def test_non_contiguous_inputs() -> None:
    share, poses, weight = some(3, 7, 5, 4, 6)
    share, poses = share.mT.contiguous().mT, poses.mT.contiguous().mT
    weight = weight.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert_matches_reference(weighted_votes, reference, [share, poses, weight])


def test_second_derivatives() -> None:
    inputs = [tensor.double().requires_grad_() for tensor in some(2, 3, 2, 2, 3)]
    assert torch.autograd.gradcheck(weighted_votes, inputs)
    assert torch.autograd.gradgradcheck(weighted_votes, inputs)


def test_no_children_give_zero() -> None:
    out = weighted_votes(torch.zeros(3, 2, 0), torch.zeros(2, 0, 4), torch.zeros(0, 3, 4, 5))
    assert out.shape == (2, 3, 5)
    assert not out.any()


def test_type_promotion_and_autocast() -> None:
    share, poses, weight = some(2, 5, 3, 4, 6)
    assert weighted_votes(share, poses.double(), weight).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        out = weighted_votes(share.requires_grad_(), poses, weight)
    assert out.dtype == torch.float32
    out.sum().backward()
    torch.testing.assert_close(out, reference(share, poses, weight))


class Largest(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(item, Tensor):
                self.numel = max(self.numel, item.numel())
        return out


@pytest.mark.parametrize("shared", [False, True])
def test_votes_are_never_stored(shared: bool) -> None:
    inputs = [tensor.requires_grad_() for tensor in some(20, 30, 7, 8, 16, shared=shared)]
    with Largest() as largest:
        weighted_votes(*inputs).sum().backward()
    assert largest.numel <= max(tensor.numel() for tensor in inputs) < 20 * 30 * 7 * 16
