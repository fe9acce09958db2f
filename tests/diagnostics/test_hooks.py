from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from torchcaps.diagnostics.gradients import gradient_norms
from torchcaps.diagnostics.hooks import (
    eval_mode,
    record_inputs,
    routing_layers,
    trace_calls,
    trace_uniform,
    uniform_routing,
)
from torchcaps.diagnostics.measures import coupling_entropy
from torchcaps.nn import ROUTERS, AttentionRouting, CapsConv2d, CapsLinear, ClassCaps, MarginLoss, Router, make_router
from torchcaps.ops import ROUTINGS, Routing, vote
from torchcaps.ops import trace as ops_trace
from torchcaps.ops.dynamic import dynamic_steps
from torchcaps.types import Capsules


class Net(nn.Module):
    """A grid of 16 numbers, two capsule layers, three classes."""

    def __init__(self, router: str = "em") -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 16))
        self.lower = CapsConv2d(2, 3, 2, routing=make_router(router))
        self.head = ClassCaps(3, 4, routing=make_router(router))

    def forward(self, poses: torch.Tensor) -> Capsules:
        return self.head(self.lower(Capsules(self.stem(poses), torch.full(poses.shape[:-1], 0.8))))


def grid() -> torch.Tensor:
    return torch.randn(3, 4, 4, 2, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def test_layers_by_path(net):
    found = routing_layers(net)
    assert list(found) == ["lower", "head"]
    assert found["head"] is net.head


def test_record_inputs(net):
    with record_inputs(routing_layers(net)) as received:
        parents = net(grid())
    assert list(received) == ["lower", "head"]
    (args,) = received["head"]
    torch.testing.assert_close(net.head.trace(*args).poses[-1], parents.poses)
    received.clear()
    net(grid())
    assert received == {}


def test_record_inputs_keeps_last_call():
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=8, out_dim=4)
    first, last = (Capsules(torch.randn(2, 6, 8), torch.ones(2, 6)) for _ in range(2))
    with record_inputs({"it": layer}) as received:
        layer(first)
        layer(last)
    assert received == {"it": [(first,), (last,)]}
    torch.testing.assert_close(trace_calls(layer, received["it"]).poses, layer.trace(last).poses)


def test_record_inputs_joins_stepwise_calls():
    class Steps(CapsLinear):
        stepwise = True

        def forward(self, children, parents=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            return router.update(children, self.weight, parents)

        def trace(self, children, parents=None, **_: Any):
            votes, start = vote(children.poses, self.weight), None if parents is None else parents.poses
            params = {**router.params(children), "iters": 1}
            return ops_trace("attention", votes, start, **params)

    torch.manual_seed(0)
    router = AttentionRouting()
    layer = Steps(6, 3, in_dim=8, out_dim=4, routing=router)
    children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
    with record_inputs({"it": layer}) as received:
        layer(children, layer(children, layer(children)))
    whole, steps = CapsLinear.trace(layer, children), trace_calls(layer, received["it"])
    for name in ("logits", "coupling", "poses", "activations"):
        torch.testing.assert_close(getattr(steps, name), getattr(whole, name))


def test_uniform_routing_of_layer_without_activations():
    class Poses(CapsLinear):
        def forward(self, children):  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(children).poses

    torch.manual_seed(0)
    layer = Poses(6, 3, in_dim=8, out_dim=4)
    children = Capsules(3 * torch.randn(2, 6, 8), torch.ones(2, 6))
    with uniform_routing(layer):
        poses = layer(children)
    torch.testing.assert_close(poses, layer.trace(children).poses[0])


@pytest.mark.parametrize("name", ROUTERS.names())
def test_uniform_routing_of_every_router(name):
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=8, out_dim=4, routing=make_router(name))
    children = Capsules(3 * torch.randn(2, 6, 8), torch.rand(2, 6))
    usual = layer.trace(children)
    even = trace_uniform(layer, children)
    torch.testing.assert_close(coupling_entropy(even.coupling), torch.ones(even.iters))
    # Afterwards it is unchanged.
    torch.manual_seed(0)
    first = layer.trace(children)
    torch.manual_seed(0)
    assert torch.equal(layer.trace(children).poses, first.poses)
    assert first.coupling.shape == usual.coupling.shape


def test_uniform_routing_equals_first_iteration():
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=8, out_dim=4, bias=True)
    children = Capsules(3 * torch.randn(2, 6, 8), torch.ones(2, 6))
    even, usual = trace_uniform(layer, children), layer.trace(children)
    torch.testing.assert_close(even.poses[-1], usual.poses[0])
    assert not torch.allclose(usual.poses[-1], usual.poses[0], atol=1e-3)


def test_uniform_routing_of_one_layer(net):
    usual = net(grid())
    with uniform_routing(net.lower) as traces:
        even = net(grid())
    assert even.poses.shape == usual.poses.shape
    assert not torch.allclose(even.poses, usual.poses, atol=1e-3)
    assert torch.equal(net(grid()).poses, usual.poses)
    # Replaces the layer by hand.
    (trace,) = traces
    window = net.lower.window(Capsules(grid(), torch.ones(3, 4, 4, 2)))
    by_hand = net.head(window.unflatten_grid(trace.routed.capsules))
    torch.testing.assert_close(even.poses, by_hand.poses)


def test_router_without_softmax_is_unchanged(monkeypatch):
    def steps(votes, *, iters: int = 2):
        yield from dynamic_steps(votes, iters=iters)

    class Own(Router):
        algorithm = "own"

    monkeypatch.setattr(ROUTINGS, "_items", {**ROUTINGS._items, "own": Routing("own", steps)})
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=8, out_dim=4, routing=Own())
    children = Capsules(3 * torch.randn(2, 6, 8), torch.ones(2, 6))
    assert torch.equal(trace_uniform(layer, children).coupling, layer.trace(children).coupling)


def test_eval_mode_restores_training(net):
    net.train()
    net.head.eval()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with eval_mode(net):
        assert not any(module.training for module in net.modules())
        draws = torch.rand(3)
    with eval_mode(net):
        assert torch.equal(torch.rand(3), draws)
    assert [module.training for module in (net, net.stem, net.stem[0], net.head)] == [True, True, True, False]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())


def test_gradient_norms_match_backward(net):
    labels = torch.tensor([0, 1, 2])
    norms = gradient_norms(net, MarginLoss(), grid(), labels)
    assert list(norms) == ["stem.1", "lower", "head"]
    assert all(weight.grad is None for weight in net.parameters())
    MarginLoss()(net(grid()), labels).backward()
    for name, part in (("stem.1", net.stem), ("lower", net.lower), ("head", net.head)):
        square = sum(float(weight.grad.square().sum()) for weight in part.parameters() if weight.grad is not None)
        assert norms[name] == pytest.approx(square**0.5, rel=1e-5)


def test_gradient_norms_of_frozen_and_unused_parameters(net):
    net.unused = nn.Linear(2, 2)
    net.stem.requires_grad_(False)
    with torch.no_grad():
        assert list(gradient_norms(net, MarginLoss(), grid(), torch.tensor([0, 1, 2]))) == ["lower", "head"]
