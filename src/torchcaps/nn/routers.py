"""Routers: modules that a capsule layer receives to decide who listens to whom."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps._registry import Registry, check_options
from torchcaps.errors import ConfigError
from torchcaps.ops import _dispatch
from torchcaps.ops._steps import ParentSoftmax, last_step, parent_softmax
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options
from torchcaps.types import Capsules, Routed, Trace

# What a router may promise, by name; `torchcaps.testing.laws` has the check of each.
LAWS = frozenset(
    {
        "absent_child_has_no_vote",
        "activations_are_probabilities",
        "coupling_is_a_share",
        "coupling_sums_to_one",
        "inactive_child_has_no_vote",
        "iterations_are_counted",
        "one_iteration_is_uniform",
        "permuting_children_changes_nothing",
        "permuting_parents_permutes",
        "route_is_vote_then_forward",
        "samples_are_alone",
        "trace_ends_in_the_result",
        "zero_votes_are_finite",
    }
)


def competition(window: ops.Window | None) -> ParentSoftmax:
    """What turns logits into coupling: over all parents, or over those that see a child through a window."""
    return parent_softmax if window is None else window.softmax


def unprepared(parameter: nn.Parameter | None) -> None:
    """Raise where a router that is to be prepared has its parameters already: they belong to one layer."""
    if parameter is not None:
        raise ConfigError("routing: expected a router of the layer's own, got one that serves another layer already")


def prepared(parameter: nn.Parameter | None) -> nn.Parameter:
    """The parameter of a router that was prepared; an error where no layer has received it."""
    if parameter is None:
        raise ConfigError("routing: expected a router that a layer has prepared, got a new one")
    return parameter


class Router(nn.Module):
    """What every router is: votes [B, I, J, D] and the children they come from in, Routed out.

    Where the children were gathered from a grid, `window` says how: a child may have parents at other positions too.

    A subclass names its routing in `ops` (`algorithm`) and says what it passes on (`options`; `inputs` where it needs
    more than its options). One with parameters of its own makes them in `prepare`. Where the algorithm has no place for
    a bias of the parents, [J, D], `takes_bias` is False. `laws` are the laws of routing that it keeps: all of them,
    unless it says otherwise.
    """

    algorithm: str
    takes_bias = False
    laws: frozenset[str] = LAWS

    # Said here because the signature of a router is what its options are read from.
    def __init__(self) -> None:
        super().__init__()

    @property
    def by_length(self) -> bool:
        """Whether it takes a child's presence from the lengths of its votes, and does not look at activations."""
        return "inactive_child_has_no_vote" not in self.laws

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        """Called once by the layer that receives this router, with its sizes; in_caps is None where it is free."""

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the routing in `ops`."""
        raise NotImplementedError

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        """Everything that the routing in `ops` takes besides the votes, by name."""
        given = {"bias": bias} if self.takes_bias else {}
        return {**given, "softmax": competition(window), **self.options()}

    def forward(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        window: ops.Window | None = None,
    ) -> Routed:
        inputs = self.inputs(votes, children, bias=bias, window=window)
        last = last_step(ops.ROUTINGS[self.algorithm](votes, **inputs))
        return Routed(last.poses, last.activations, last.coupling)

    def trace(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        window: ops.Window | None = None,
    ) -> Trace:
        """The same routing with every iteration kept; `window` as in `forward`."""
        inputs = self.inputs(votes, children, bias=bias, window=window)
        return ops.trace(self.algorithm, votes, **inputs)

    def route(
        self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, backend: str = "auto"
    ) -> Capsules:
        """From children [B, I, P] through weight [I, J, P, D] to parents; a router with a fast twin calls it here."""
        self._check_reference(backend, "in a dense layer")
        return self(ops.vote(children.poses, weight), children, bias=bias).capsules

    def convolve(self, children: Capsules, weight: Tensor, window: ops.Window, *, backend: str = "auto") -> Capsules:
        """From a grid of children [B, H, W, I, P] to a grid of parents [B, H', W', J, D]; for weight see `Window`."""
        self._check_reference(backend, "over a grid")
        seen = window.gather(children)
        routed = self(self.votes(seen, weight, window), seen, window=window)
        return window.spread(routed.capsules)

    def _check_reference(self, backend: str, where: str) -> None:
        if backend not in ("auto", "reference"):
            raise ConfigError(
                f"backend: expected 'auto' or 'reference' for {self.algorithm} routing {where}, got '{backend}'"
            )

    def votes(self, seen: Capsules, weight: Tensor, window: ops.Window) -> Tensor:
        """What gathered children vote; where lengths count, their offsets count as far as they are there."""
        return window.votes(seen.poses, weight, seen.activations if self.by_length else None)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options().items())


ROUTERS: Registry[type[Router]] = Registry("router")


def list_routers(pattern: str = "*") -> list[str]:
    """The names of the routers that match a shell pattern.

    >>> list_routers("*routing")
    ['self_routing']
    """
    return ROUTERS.names(pattern)


def make_router(routing: Router | str | Mapping[str, Any]) -> Router:
    """A router from its name, from a name with options, or as it is.

    >>> make_router({"name": "dynamic", "iters": 1})
    DynamicRouting(iters=1, leaky=False, grad='all')
    """
    if isinstance(routing, Router):
        return routing
    if not isinstance(routing, str | Mapping):
        raise ConfigError(f"routing: expected a router, its name, or a table with its name and options, got {routing}")
    options = {"name": routing} if isinstance(routing, str) else dict(routing)
    if "name" not in options:
        raise ConfigError(f"routing: expected a table with the key 'name', got {options}")
    router = ROUTERS[options.pop("name")]
    known = inspect.signature(router).parameters
    check_options(options, known, router.__name__)
    for name, value in options.items():
        _check_kind(name, value, known[name].default)
    return router(**options)


def _check_kind(name: str, value: object, default: object) -> None:
    """Raise where an option is no switch or number though its default is: words of a recipe are not looked at before.

    A switch that is given as a word would be on, whatever the word says.
    """
    switch, whole = isinstance(value, bool), isinstance(value, int)
    fits, wanted = True, ""
    if isinstance(default, bool):
        fits, wanted = switch, "true or false"
    elif isinstance(default, int):
        fits, wanted = whole and not switch, "a whole number"
    elif isinstance(default, float):
        fits, wanted = (whole or isinstance(value, float)) and not switch, "a number"
    if not fits:
        raise ConfigError(f"{name}: expected {wanted}, got {value!r}")


class SquashRouting(Router):
    """What routers share whose parents are squashed sums of votes: activations are lengths, a bias has its place."""

    takes_bias = True
    # The votes carry the children's activations already.
    laws = LAWS - {"inactive_child_has_no_vote"}

    def route(
        self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, backend: str = "auto"
    ) -> Capsules:
        poses = _dispatch.route(backend, self.algorithm, children.poses, weight, bias, self.options())  # [B, J, D]
        if poses is None:
            return super().route(children, weight, bias=bias)
        return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


@ROUTERS.register("dynamic")
class DynamicRouting(SquashRouting):
    """Routing by agreement (Sabour et al. 2017); see `ops.dynamic_routing` for the options.

    The children's activations are the lengths of their poses, so that the votes carry them already.

    >>> import torch
    >>> children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
    >>> DynamicRouting(iters=3)(torch.randn(2, 6, 3, 4), children).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "dynamic"

    def __init__(self, iters: int = 3, *, leaky: bool = False, grad: GradMode = "all") -> None:
        super().__init__()
        check_routing_options(iters, grad)
        self.iters = iters
        self.leaky = leaky
        self.grad: GradMode = grad
        if leaky:
            self.laws = self.laws - {"coupling_sums_to_one"}

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "leaky": self.leaky, "grad": self.grad}
