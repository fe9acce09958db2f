from __future__ import annotations

import pytest
import torch

from torchcaps.bench.baselines import broadcast_routing, einsum_routing
from torchcaps.ops import dynamic_routing, vote


@pytest.mark.parametrize("baseline", [broadcast_routing, einsum_routing])
@pytest.mark.parametrize("iters", [1, 3])
def test_baselines_match_reference(baseline, iters):
    generator = torch.Generator().manual_seed(iters)
    poses, weight, bias, grad = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((2, 7, 3), (7, 4, 3, 5), (4, 5), (2, 4, 5))
    )
    inputs = [tensor.requires_grad_() for tensor in (poses, weight, bias)]
    expected = dynamic_routing(vote(poses, weight), bias=bias, iters=iters).poses
    got = baseline(*inputs, iters)
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(
        torch.autograd.grad(got, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
