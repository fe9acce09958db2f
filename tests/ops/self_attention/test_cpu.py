from __future__ import annotations

import pytest
import torch

from kernels import dense, joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.ops import _native
from torchcaps.testing import assert_matches_reference

missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("prior", ["none", "one", "all"])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 3, 5), (3, 7, 1, 4, 4), (17, 33, 2, 5, 7), (16, 200, 10, 8, 16)])
def test_matches_reference(sizes: tuple[int, ...], prior: str, shared: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, children, parents, in_dim, out_dim = sizes
    # Shorter votes where there are many: logits are sums over all children.
    poses = torch.randn(batch, children, in_dim) / children**0.5
    weight = 0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim)
    priors = {"none": None, "one": torch.randn(1, parents), "all": torch.randn(children, parents)}
    assert_matches_reference(
        lambda poses, weight, prior: joined(dense("self_attention", poses, weight, prior=prior)),
        lambda poses, weight, prior: joined(ops.self_attention_routing(ops.vote(poses, weight), prior=prior).capsules),
        [poses, weight, priors[prior]],
        dtype=dtype,
        factor=4,
    )


def test_prior_of_wrong_shape() -> None:
    with raises_about(ShapeError, "prior", "(3, 3)"):
        dense("self_attention", torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6), prior=torch.zeros(3, 3))
