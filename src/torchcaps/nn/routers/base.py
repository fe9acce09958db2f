"""The base class and the registry of all routers."""

from __future__ import annotations

import copy
import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.ops._reference import CouplingMode, conv_votes, reference_steps
from torchcaps.ops._route import stack_steps
from torchcaps.types import Capsules, Routed, Trace

# Laws that a router may declare, by name; `torchcaps.testing.laws` has the check of each.
LAWS = frozenset(
    {
        "absent_child_has_no_vote",
        "activations_are_probabilities",
        "coupling_is_a_share",
        "coupling_sums_to_one",
        "full_mask_changes_nothing",
        "inactive_child_has_no_vote",
        "iterations_are_counted",
        "masked_child_changes_nothing",
        "one_iteration_is_uniform",
        "permuting_children_changes_nothing",
        "permuting_parents_permutes",
        "route_is_vote_then_forward",
        "samples_are_alone",
        "trace_ends_in_the_result",
        "zero_votes_are_finite",
    }
)

R = TypeVar("R", bound="Router")


def check_unprepared(parameter: nn.Parameter | None) -> None:
    """Raise ConfigError where a router has its parameters already: they belong to one layer."""
    if parameter is not None:
        raise ConfigError("routing: expected a router of the layer's own, got one that another layer uses")


def prepared(parameter: nn.Parameter | None) -> nn.Parameter:
    """Return a parameter that `prepare` made; raise ConfigError where no layer has received the router."""
    if parameter is None:
        raise ConfigError("routing: expected a router that a layer has prepared, got a new one")
    return parameter


class Router(nn.Module):
    """Base class of all routers: the options and parameters of one routing algorithm.

    A subclass sets `algorithm`, the name of its `ops.Routing`. Its constructor arguments are stored as attributes of
    the same names and are passed to the routing; `params` is overridden where the routing takes more than these.
    Parameters are created in `prepare` and initialised in `reset_parameters`. `laws` declares which laws of routing
    (`torchcaps.testing.laws`) the router keeps: all, unless a subclass removes some. Tests read it, nothing else does.
    `parent_axes` declares that its parents can be divided over processes (`shard_parents`), because only the softmax
    couples them: name and axis of the parents of each parameter that has one. None, the default, says that they cannot.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Example:
        >>> from torchcaps.nn import make_router
        >>> make_router("dynamic").algorithm
        'dynamic'
    """

    algorithm: str = ""
    laws: frozenset[str] = LAWS
    parent_axes: tuple[tuple[str, int], ...] | None = None
    _option_names: tuple[str, ...] = ()

    # The constructor's signature defines the options of a router.
    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._option_names = tuple(inspect.signature(cls.__init__).parameters)[1:]

    @property
    def contract(self) -> ops.Routing:
        """The registered algorithm: its reference and kernels."""
        return ops.ROUTINGS[self.algorithm]

    @property
    def takes_bias(self) -> bool:
        """Whether the routing takes a bias [J, D] of the parents."""
        return self.contract.takes_bias

    @property
    def reads_activations(self) -> bool:
        """Whether the routing reads the children's activations. Otherwise the length of a vote is its presence."""
        return self.contract.reads_activations

    def prepare(
        self,
        in_caps: int | None,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Create the parameters of the router; the layer that receives it calls this once.

        Args:
            in_caps: Number of children, or None where it is free.
            out_caps: Number of parents.
            in_dim: Pose size of the children.
            out_dim: Pose size of the parents.
            device: Device of the parameters.
            dtype: Type of the parameters.

        Raises:
            ConfigError: If the router has its parameters already.
        """

    def reset_parameters(self) -> None:
        """Initialise the parameters in place. A router without parameters does nothing."""

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        """Return the keyword arguments of the routing: options and learned tensors.

        Args:
            children: Children [B, I, P], or a grid of them [B, H, W, I, P] with a window.
            window: The window, in a convolutional layer.

        Returns:
            The arguments by name. By default they are the constructor's.
        """
        return self.options()

    def masked_params(self, children: Capsules, mask: Tensor, window: ops.Window | None = None) -> dict[str, Any]:
        """Return the keyword arguments of the routing where some children are masked.

        A router whose arguments depend on the number of children overrides it, so that it counts those present.

        Args:
            children: The children, of which the masked ones are absent.
            mask: True where a child is present.
            window: The window, in a convolutional layer.

        Shape:
            children: [B, I, P] or [B, H, W, I, P]; mask: [B, I] or [B, H, W, I].

        Returns:
            The arguments by name. By default they are those without a mask.
        """
        return self.params(children, window)

    def options(self) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        return {name: getattr(self, name) for name in self._option_names}

    def with_iters(self: R, iters: int) -> R:
        """Return a router with another number of iterations that shares all parameters.

        Args:
            iters: Number of routing iterations.

        Returns:
            A shallow copy.

        Raises:
            ConfigError: If the router has no iterations.
        """
        if "iters" not in self._option_names:
            raise ConfigError(f"iters: expected None with {type(self).__name__}, got {iters} (it does not iterate)")
        other = copy.copy(self)
        vars(other)["iters"] = iters
        return other

    def forward(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        window: ops.Window | None = None,
    ) -> Routed:
        """Route votes with the reference.

        Args:
            votes: Predictions of every child for every parent.
            children: The children that vote, gathered through `window` if there is one.
            bias: Vector added to each parent.
            window: The window that gathered the children.

        Shape:
            votes: [B, I, J, D]; children: [B, I, P]; bias: [J, D]; returns poses [B, J, D], activations [B, J],
            coupling [B, I, J].

        Returns:
            The parents and the coupling of the last iteration.

        Raises:
            ConfigError: If there is a bias that the routing does not take.
        """
        steps = reference_steps(self.contract, votes, children, window, self._inputs(children, bias, window))
        last = ops.last_step(steps)
        return Routed(last.poses, last.activations, last.coupling)

    def trace(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        window: ops.Window | None = None,
        coupling: CouplingMode = "routed",
        iters: int | None = None,
        **params: Any,
    ) -> Trace:
        """Route votes with the reference and keep every iteration.

        Args:
            votes: Predictions of every child for every parent.
            children: The children that vote, gathered through `window` if there is one.
            bias: Vector added to each parent.
            window: The window that gathered the children.
            coupling: `uniform` gives every parent the same share of a child in all iterations.
            iters: Number of iterations instead of the router's own.
            **params: Further arguments of the routing, such as where it starts.

        Shape:
            votes: [B, I, J, D]; children: [B, I, P]; bias: [J, D].

        Returns:
            The iterations, stacked along a first axis R.

        Raises:
            ConfigError: If the routing has no bias, no iterations or no softmax that could be made uniform.
        """
        router = self if iters is None else self.with_iters(iters)
        inputs = {**router._inputs(children, bias, window), **params}
        steps = reference_steps(self.contract, votes, children, window, inputs, coupling)
        return stack_steps(self.algorithm, votes, steps)

    def trace_conv(self, children: Capsules, weight: Tensor, window: ops.Window, **params: Any) -> Trace:
        """Route a grid of children with the reference and keep every iteration; each position counts as a sample.

        Args:
            children: A grid of lower capsules.
            weight: Matrices of the window; see `ops.Window.votes`.
            window: The window of the layer.
            **params: As in `trace`.

        Shape:
            children: poses [B, H, W, I, P]; the trace has votes [B*H'*W', K*K*I, J, D].

        Returns:
            The iterations, stacked along a first axis R.
        """
        gathered = window.gather(children)
        votes = conv_votes(self.contract, gathered, weight, window)  # [B*H'*W', K*K*I, J, D]
        return self.trace(votes, gathered, window=window, **params)

    def route(
        self,
        children: Capsules,
        weight: Tensor,
        *,
        bias: Tensor | None = None,
        backend: str = "auto",
        mask: Tensor | None = None,
    ) -> Capsules:
        """Route a dense layer; see `ops.route`.

        Args:
            children: The lower capsules.
            weight: One matrix per child and parent, or one per parent.
            bias: Vector added to each parent.
            backend: Implementation, `auto` for the fastest available.
            mask: True where a child is present.

        Shape:
            children: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; bias: [J, D]; mask: bool [B, I]; returns [B, J, D].

        Returns:
            The parents.

        Raises:
            ConfigError: If the backend cannot serve or there is a bias that the routing does not take.
        """
        params = self._inputs(children, bias, None, mask)
        return ops.route(children, weight, self.algorithm, backend=backend, mask=mask, **params)

    def route_conv(
        self,
        children: Capsules,
        weight: Tensor,
        window: ops.Window,
        *,
        backend: str = "auto",
        mask: Tensor | None = None,
    ) -> Capsules:
        """Route a convolutional layer; see `ops.route_conv`.

        Args:
            children: A grid of lower capsules.
            weight: Matrices of the window; see `ops.Window.votes`.
            window: The window of the layer.
            backend: Implementation, `auto` for the fastest available.
            mask: True where a child is present.

        Shape:
            children: [B, H, W, I, P]; mask: bool [B, H, W, I] or [B, H, W]; returns [B, H', W', J, D].

        Returns:
            A grid of parents.

        Raises:
            ConfigError: If the backend cannot serve.
        """
        params = self._inputs(children, None, window, mask)
        return ops.route_conv(children, weight, window, self.algorithm, backend=backend, mask=mask, **params)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options().items())

    def _inputs(
        self, children: Capsules, bias: Tensor | None, window: ops.Window | None, mask: Tensor | None = None
    ) -> dict[str, Any]:
        if mask is None:
            params = self.params(children, window)
        else:
            params = self.masked_params(children, ops.expand_mask(mask, children), window)
        if bias is None:
            return params
        if not self.takes_bias:
            raise ConfigError(f"bias: expected None with {type(self).__name__}, got {tuple(bias.shape)}")
        return {**params, "bias": bias}


ROUTERS: Registry[type[Router]] = Registry("router")
