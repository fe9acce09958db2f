"""K-means, attention and self-attention routers; their laws are in tests/testing/test_laws.py."""

from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import (
    AttentionRouting,
    CapsConv2d,
    CapsLinear,
    ClassCaps,
    KMeansRouting,
    Router,
    SelfAttentionRouting,
    make_router,
)
from torchcaps.ops.conv import Competition
from torchcaps.types import Capsules

CHILDREN = Capsules(torch.rand(2, 6, 4), torch.rand(2, 6))
GRID = Capsules(torch.rand(2, 5, 5, 2, 16), torch.rand(2, 5, 5, 2))
NAMES = ["kmeans", "attention", "self_attention"]


def learned(router: Router) -> Router:
    """A router whose parameters are no longer at their start values."""
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    return router


def test_kmeans_options_reach_ops() -> None:
    votes = torch.randn(2, 6, 3, 5)
    out = KMeansRouting(iters=2, inverse_temp=4.0)(votes, CHILDREN)
    torch.testing.assert_close(out, ops.kmeans_routing(votes, iters=2, inverse_temp=4.0))
    assert not torch.allclose(out.poses, ops.kmeans_routing(votes, iters=2).poses)


def test_attention_normalisation_is_learned() -> None:
    router = AttentionRouting(iters=2)
    router.prepare(6, 3, 4, 5)
    assert {name: tuple(value.shape) for name, value in router.named_parameters()} == {"gain": (5,), "offset": (5,)}
    votes = torch.randn(2, 6, 3, 5)
    torch.testing.assert_close(router(votes, CHILDREN), ops.attention_routing(votes, iters=2))
    learned(router)
    expected = ops.attention_routing(votes, gain=router.gain, offset=router.offset, iters=2)
    torch.testing.assert_close(router(votes, CHILDREN), expected)


@pytest.mark.parametrize(("in_caps", "shape"), [(6, (6, 3)), (None, (1, 3))])
def test_self_attention_prior_per_child(in_caps: int | None, shape: tuple[int, int]) -> None:
    router = SelfAttentionRouting()
    router.prepare(in_caps, 3, 4, 5)
    assert [tuple(value.shape) for value in router.parameters()] == [shape]
    votes = torch.randn(2, 6, 3, 5)
    torch.testing.assert_close(router(votes, CHILDREN), ops.self_attention_routing(votes))
    learned(router)
    expected = ops.self_attention_routing(votes, prior=router.prior)
    torch.testing.assert_close(router(votes, CHILDREN), expected)


@pytest.mark.parametrize("name", NAMES)
def test_shared_weights_take_any_number_of_children(name: str) -> None:
    layer = CapsLinear(None, 3, in_dim=4, out_dim=5, routing=make_router(name))
    learned(layer.routing)
    for count in (1, 6, 11):
        assert layer(Capsules(torch.rand(2, count, 4), torch.rand(2, count))).poses.shape == (2, 3, 5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("competition", ["global", "local"])
def test_convolution(name: str, competition: Competition) -> None:
    layer = CapsConv2d(2, 3, 3, 2, pose="vector", routing=make_router(name), competition=competition)
    learned(layer.routing)
    out = layer(GRID)
    assert out.poses.shape == (2, 2, 2, 3, 16)
    trace = layer.trace(GRID)
    torch.testing.assert_close(trace.poses[-1].unflatten(0, (2, 2, 2)), out.poses)
    # Four positions cover a child in the middle: it is shared by the parents of all of them, or of each position.
    seen = trace.coupling[-1].sum((0, 2)) if competition == "local" else trace.coupling[-1].sum()
    expected = 2.0 * 4 * torch.ones(18) if competition == "local" else torch.tensor(2.0 * 5 * 5 * 2)
    torch.testing.assert_close(seen, expected)


@pytest.mark.parametrize("name", NAMES)
def test_class_layer(name: str) -> None:
    layer = ClassCaps(2, 3, routing=make_router(name))
    learned(layer.routing)
    assert layer(GRID).activations.shape == (2, 3)


@pytest.mark.parametrize("in_caps", [6, None])
@pytest.mark.parametrize("name", NAMES)
def test_available_backends_match_reference(name: str, in_caps: int | None) -> None:
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=make_router(name), backend="reference").double()
    learned(layer.routing)
    children = Capsules(*(tensor.double() for tensor in CHILDREN))
    expected = layer(children)
    for kernel in ops.list_kernels():
        if kernel.algorithm == name and kernel.available:
            layer.backend = kernel.backend
            torch.testing.assert_close(layer(children), expected)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_layer_is_one_graph(name: str) -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5, routing=make_router(name))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    inputs = list(layer.parameters())
    expected, got = layer(CHILDREN), compiled(CHILDREN)
    torch.testing.assert_close(got, expected)
    grads = [torch.autograd.grad(out.poses.square().sum(), inputs) for out in (got, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_successive_updates_equal_routing(backend: str) -> None:
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5, routing=AttentionRouting(iters=3))
    router = learned(layer.routing)
    assert isinstance(router, AttentionRouting)
    parents = None
    for _ in range(3):
        parents = router.update(CHILDREN, layer.weight, parents, backend=backend)
    torch.testing.assert_close(parents, layer(CHILDREN))


@pytest.mark.parametrize("competition", ["global", "local"])
def test_updates_in_a_window(competition: Competition) -> None:
    layer = CapsConv2d(2, 3, 3, 2, routing=AttentionRouting(iters=2), competition=competition)
    router = learned(layer.routing)
    assert isinstance(router, AttentionRouting)
    first = router.update(GRID, layer.weight, window=layer.window(GRID))
    assert first.poses.shape == (2, 2, 2, 3, 16)
    second = router.update(GRID, layer.weight, first, window=layer.window(GRID))
    torch.testing.assert_close(second, layer(GRID))
    torch.testing.assert_close(router.update(GRID, layer.weight, window=layer.window(GRID), backend="reference"), first)


def test_updates_with_coordinates() -> None:
    places = [0.1, 0.3, 0.5, 0.7, 0.9]
    layer = ClassCaps(2, 3, routing=AttentionRouting(iters=2), centres=(places, places))
    router = learned(layer.routing)
    assert isinstance(router, AttentionRouting)
    first = router.update(GRID, layer.weight, window=layer.window(GRID))
    second = router.update(GRID, layer.weight, first, window=layer.window(GRID))
    torch.testing.assert_close(second.flatten(), layer(GRID))


def test_update_gradient_of_parents() -> None:
    router = AttentionRouting()
    router.prepare(6, 3, 4, 5)
    parents = Capsules(torch.randn(2, 3, 5, requires_grad=True), torch.ones(2, 3))
    router.update(CHILDREN, torch.randn(6, 3, 4, 5), parents).poses.square().sum().backward()
    assert parents.poses.grad is not None
    assert parents.poses.grad.abs().min() > 0


def test_errors_name_the_argument() -> None:
    votes = torch.zeros(2, 6, 3, 5)
    for name in ("attention", "self_attention"):
        with raises_about(ConfigError, "routing", "a new one"):
            make_router(name)(votes, CHILDREN)
        router = make_router(name)
        router.prepare(6, 3, 4, 5)
        with raises_about(ConfigError, "routing", "another layer"):
            router.prepare(6, 3, 4, 5)
    with raises_about(ConfigError, "routing", "a new one"):
        AttentionRouting().update(CHILDREN, torch.zeros(6, 3, 4, 5))
    with raises_about(ConfigError, "iters", "0"):
        AttentionRouting(iters=0)
    with raises_about(ConfigError, "inverse_temp", "0"):
        KMeansRouting(inverse_temp=0)
    with raises_about(ConfigError, "out_dim", "AttentionRouting", "got 1"):
        CapsLinear(6, 3, in_dim=4, out_dim=1, routing=AttentionRouting())
    with raises_about(ConfigError, "'iters'"):
        make_router({"name": "self_attention", "iters": 3})
    router = SelfAttentionRouting()
    router.prepare(5, 3, 4, 5)
    with raises_about(ShapeError, "prior", "(5, 3)"):
        router(votes, CHILDREN)
