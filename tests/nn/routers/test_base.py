"""Routers in general; their laws are in tests/testing/test_laws.py."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.nn import ROUTERS, CapsLinear, DynamicRouting, Router, list_routers, make_router
from torchcaps.types import Capsules

CHILDREN = Capsules(torch.rand(2, 6, 4), torch.rand(2, 6))


@pytest.mark.parametrize("options", [{}, {"iters": 1}, {"leaky": True}, {"iters": 2, "grad": "last"}])
def test_dynamic_options_reach_ops(options: dict[str, Any]) -> None:
    votes, bias = torch.randn(2, 6, 3, 5), torch.randn(3, 5)
    torch.testing.assert_close(
        DynamicRouting(**options)(votes, CHILDREN, bias=bias), ops.dynamic_routing(votes, bias=bias, **options)
    )
    trace = DynamicRouting(**options).trace(votes, CHILDREN, bias=bias)
    torch.testing.assert_close(trace.poses, ops.trace("dynamic", votes, bias=bias, **options).poses)


def test_gradient_mode_reaches_ops() -> None:
    votes = torch.randn(2, 6, 3, 5, requires_grad=True)
    (whole,) = torch.autograd.grad(DynamicRouting(grad="all")(votes, CHILDREN).poses.sum(), votes)
    (last,) = torch.autograd.grad(DynamicRouting(grad="last")(votes, CHILDREN).poses.sum(), votes)
    assert not torch.allclose(whole, last)


@pytest.mark.parametrize("name", ROUTERS.names())
def test_every_router_in_a_layer(name: str) -> None:
    router = make_router(name)
    assert type(router) is ROUTERS[name]
    assert router.algorithm in ops.ROUTINGS
    layer = CapsLinear(6, 3, in_dim=4, out_dim=4, routing=router, bias=router.takes_bias)
    out = layer(CHILDREN)
    assert out.poses.shape == (2, 3, 4)
    assert out.activations.shape == (2, 3)
    assert layer.trace(CHILDREN).algorithm == router.algorithm
    (out.poses.sum() + out.activations.sum()).backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert type(router).__name__ in repr(layer)


def test_make_router() -> None:
    router = DynamicRouting()
    assert make_router(router) is router
    made = make_router({"name": "dynamic", "iters": 5, "leaky": True})
    assert isinstance(made, DynamicRouting)
    assert (made.iters, made.leaky) == (5, True)


def test_make_router_does_not_modify_table() -> None:
    table = {"name": "dynamic", "iters": 1}
    make_router(table)
    assert table == {"name": "dynamic", "iters": 1}


def test_make_router_from_something_unknown() -> None:
    with raises_about(ConfigError, "routing", "{'iters': 1}"):
        make_router({"iters": 1})
    with raises_about(UnknownNameError, "'dinamic'", "'dynamic'"):
        make_router("dinamic")
    with raises_about(ConfigError, "'iter'", "'iters'"):
        make_router({"name": "dynamic", "iter": 1})
    given: Any = 3
    with raises_about(ConfigError, "routing:", 3):
        make_router(given)


@pytest.mark.parametrize(
    ("table", "option", "value"),
    [
        ({"name": "dynamic", "leaky": "False"}, "leaky", "'False'"),
        ({"name": "em", "normalise": 1}, "normalise", 1),
        ({"name": "kmeans", "iters": 1.5}, "iters", 1.5),
        ({"name": "attention", "iters": True}, "iters", True),
        ({"name": "kuramoto", "gain": "high"}, "gain", "'high'"),
        ({"name": "variational", "scatter": None}, "scatter", None),
    ],
)
def test_option_of_wrong_type(table: dict[str, Any], option: str, value: object) -> None:
    with raises_about(ConfigError, f"{option}:", value):
        make_router(table)


def test_option_types_are_converted() -> None:
    assert make_router({"name": "kuramoto", "gain": 2}).options()["gain"] == 2
    assert make_router({"name": "em", "schedule": 0.5, "iters": 2}).inverse_temp == (0.5, 0.5)  # pyright: ignore[reportAttributeAccessIssue]


def test_options_are_checked_when_the_router_is_made() -> None:
    with raises_about(ConfigError, "iters", "0"):
        DynamicRouting(iters=0)
    with raises_about(ConfigError, "grad", "'none'"):
        make_router({"name": "dynamic", "grad": "none"})


def test_bare_router_has_no_algorithm() -> None:
    router = Router()
    router.prepare(6, 3, 4, 5)
    assert router.options() == {}
    with raises_about(UnknownNameError, "unknown routing ''"):
        router(torch.zeros(2, 6, 3, 5), CHILDREN)


@pytest.mark.parametrize("name", ROUTERS.names())
def test_options_match_constructor(name: str) -> None:
    router = make_router(name)
    known = inspect.signature(ROUTERS[name]).parameters
    assert router.options() == {option: known[option].default for option in known}


@pytest.mark.parametrize("name", ROUTERS.names())
def test_trace_with_another_number_of_iterations(name: str) -> None:
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=4, out_dim=4, routing=name)
    children = Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))
    before = layer.trace(children)
    if "iters" not in inspect.signature(ROUTERS[name]).parameters:
        with raises_about(ConfigError, "iters", 5):
            layer.trace(children, iters=5)
        return
    longer = layer.trace(children, iters=5)
    assert longer.iters == 5
    # The first iterations are the same, and the router keeps its own number.
    torch.testing.assert_close(longer.poses[: before.iters], before.poses)
    assert layer.trace(children).iters == before.iters < 5


def test_unsupported_bias() -> None:
    router = make_router("em")
    router.prepare(6, 3, 4, 4)
    with raises_about(ConfigError, "bias", (3, 4)):
        router(torch.zeros(2, 6, 3, 4), CHILDREN, bias=torch.zeros(3, 4))


def test_routers_are_listed_by_pattern() -> None:
    assert list_routers() == ROUTERS.names()
    assert list_routers("dyn*") == ["dynamic"]
    assert {"uniform", "random", "self_routing", "variational", "kuramoto", "em"} <= set(list_routers())
