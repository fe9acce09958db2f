from __future__ import annotations

from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, DynamicRouting, Router
from torchcaps.types import Capsules


def some_children(*shape: int, dtype: torch.dtype = torch.float32) -> Capsules:
    poses = ops.squash(torch.randn(*shape, dtype=dtype))
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("in_caps", [6, None])
def test_votes_and_routes(in_caps: int | None, bias: bool) -> None:
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=DynamicRouting(iters=2, leaky=True), bias=bias)
    children = some_children(2, 6, 4)
    expected = ops.dynamic_routing(ops.vote(children.poses, layer.weight), bias=layer.bias, iters=2, leaky=True)
    torch.testing.assert_close(layer(children), expected.capsules)


def test_grid_is_flattened_by_position() -> None:
    layer = CapsLinear(2 * 3 * 4, 3, in_dim=5, out_dim=6)
    grid = some_children(2, 2, 3, 4, 5)
    torch.testing.assert_close(layer(grid), layer(grid.flatten()))


def test_a_shared_weight_takes_any_number_of_children() -> None:
    layer = CapsLinear(None, 3, in_dim=4, out_dim=5)
    assert layer.weight.shape == (3, 4, 5)
    for children in (1, 7, 30):
        assert layer(some_children(2, children, 4)).poses.shape == (2, 3, 5)


def test_default_routing() -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5)
    assert isinstance(layer.routing, DynamicRouting)
    assert layer.trace(some_children(2, 6, 4)).iters == 3


def test_trace_ends_in_result() -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5, bias=True)
    children = some_children(2, 6, 4)
    torch.testing.assert_close(layer.trace(children).routed.capsules, layer(children))


def test_start_values() -> None:
    layer = CapsLinear(100, 10, in_dim=8, out_dim=16, bias=True)
    assert layer.bias is not None
    assert layer.bias.shape == (10, 16)
    torch.testing.assert_close(layer.bias, torch.full((10, 16), 0.1))
    assert layer.weight.abs().max() <= 0.2
    # A normal of deviation 0.1 cut at two deviations has a deviation of 0.088.
    assert layer.weight.std().item() == pytest.approx(0.088, abs=0.002)
    assert layer.weight.mean().item() == pytest.approx(0, abs=0.002)


def test_reset_parameters() -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5)
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, before)


@pytest.mark.parametrize("in_caps", [4, None])
def test_gradient(in_caps: int | None) -> None:
    layer = CapsLinear(in_caps, 3, in_dim=2, out_dim=3, bias=True).double()
    children = some_children(2, 4, 2, dtype=torch.float64)
    poses = children.poses.requires_grad_()
    inputs = (poses, *layer.parameters())
    assert torch.autograd.gradcheck(lambda p, *_: tuple(layer(Capsules(p, children.activations))), inputs)


def test_router_is_prepared_once() -> None:
    class PreparedOnce(DynamicRouting):
        sizes: tuple[int | None, ...] = ()

        def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int, **factory: Any) -> None:
            self.sizes = (*self.sizes, in_caps, out_caps, in_dim, out_dim)

    for in_caps in (6, None):
        router = PreparedOnce()
        CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=router)
        assert router.sizes == (in_caps, 3, 4, 5)


def test_unsupported_bias() -> None:
    with raises_about(ConfigError, "bias", "True", "KMeansRouting"):
        CapsLinear(6, 3, in_dim=4, out_dim=5, routing="kmeans", bias=True)
    assert isinstance(CapsLinear(6, 3, in_dim=4, out_dim=5, routing="kmeans").routing, Router)


@pytest.mark.parametrize("call", ["forward", "trace"])
def test_children_of_wrong_type(call: str) -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5)
    with raises_about(ShapeError, "children", "Tensor"):
        getattr(layer, call)(torch.zeros(2, 6, 4))


def test_wrong_number_of_children() -> None:
    with raises_about(ShapeError, "poses", "(2, 7, 4) (7 children)"):
        CapsLinear(6, 3, in_dim=4, out_dim=5)(some_children(2, 7, 4))


def test_repr() -> None:
    text = repr(CapsLinear(6, 3, in_dim=4, out_dim=5, routing=DynamicRouting(iters=2)))
    assert "in_caps=6, out_caps=3, in_dim=4, out_dim=5" in text
    assert "DynamicRouting(iters=2, leaky=False, grad='all', squash='standard')" in text
    assert "in_caps=None, out_caps=3" in repr(CapsLinear(None, 3, in_dim=4, out_dim=5))
