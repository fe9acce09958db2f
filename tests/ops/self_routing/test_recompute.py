from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import CapsLinear, SelfRouting
from torchcaps.ops import self_routing, vote
from torchcaps.ops.self_routing import recompute
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules


def both(
    use_recompute: bool, poses: Tensor, weight: Tensor, activations: Tensor, route_weight: Tensor, bias: Tensor | None
) -> Tensor:
    if use_recompute:
        given = {"route_weight": route_weight, "route_bias": bias}
        out, presence = recompute.dense(Capsules(poses, activations), weight, **given)
    else:
        given = {"route_weight": route_weight, "route_bias": bias}
        out, presence, _ = self_routing(vote(poses, weight), activations, poses, **given)
    return torch.cat([out, presence.unsqueeze(-1)], dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(3, 7, 5, 3, 6), (1, 1, 1, 1, 1), (5, 33, 3, 4, 17), (2, 1152, 10, 8, 16)])
def test_matches_reference(size: tuple[int, ...], shared: bool, with_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    b, i, j, p, d = size
    own = () if shared else (i,)
    inputs = [
        torch.randn(b, i, p),
        torch.randn(*own, j, p, d),
        torch.rand(b, i),
        torch.randn(*own, j, p),
        torch.randn(*own, j) if with_bias else None,
    ]
    assert_matches_reference(partial(both, True), partial(both, False), inputs, dtype=dtype, factor=4)


def test_inactive_children_are_finite() -> None:
    inputs = [torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6), torch.zeros(2, 5), torch.randn(5, 3, 4), torch.zeros(5, 3)]
    out = both(True, *(tensor.requires_grad_() for tensor in inputs))
    out.sum().backward()
    assert not out.any()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in inputs)


@pytest.mark.parametrize("in_caps", [7, None])
def test_layer_reports_backend(in_caps: int | None) -> None:
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=SelfRouting(), backend="recompute")
    poses = torch.randn(2, 7, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))


def test_shapes_are_checked() -> None:
    with raises_about(ShapeError, "poses", "5 children"):
        recompute.dense(
            Capsules(torch.zeros(2, 6, 4), torch.zeros(2, 6)), torch.zeros(5, 3, 4, 6), route_weight=torch.zeros(3, 4)
        )
