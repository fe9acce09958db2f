"""The routing contract: one `Routing` per algorithm, with one `Kernel` per fast implementation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchcaps._registry import Registry, check_options
from torchcaps.errors import ConfigError
from torchcaps.ops._iterations import Steps
from torchcaps.ops.conv import Window
from torchcaps.types import Capsules

Unavailable = Callable[[torch.device, torch.dtype], str | None]


def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names that a function takes by keyword, or None where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY)


def always_available(device: torch.device, dtype: torch.dtype) -> str | None:
    """Accept every device and floating-point type: the check of kernels made of torch operations."""
    if dtype.is_floating_point:
        return None
    return f"it computes floating-point types, got {dtype}; use backend='reference'"


def supports_all(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    """Accept every size and option."""
    return None


@dataclass(frozen=True)
class Kernel:
    """A fast implementation of a routing for one backend.

    A kernel computes the same parents as the reference, from children and weight instead of votes, and is
    differentiable in all its tensors. An option that `dense` or `conv` does not accept is unsupported.

    Args:
        backend: Name of the backend: `cpu`, `triton`, `recompute`, or a name of your own.
        dense: `(children, weight, **params) -> Capsules` for children [B, I, P] and weight [I, J, P, D] or [J, P, D].
        conv: `(children, weight, window, **params) -> Capsules` for a grid of children [B, H, W, I, P].
        unavailable: `(device, dtype) -> reason`, None where the kernel can run. Called once per device and type.
        unsupported: `(children, weight, window=None, **params) -> reason`, None where it computes this case.
        composite: The kernel consists of torch operations only, so that `torch.func`, forward-mode derivatives and
            export work through it.
        device: Device type that the kernel is made for.
        describe: Detail for `torchcaps info`, such as the instruction set.

    Example:
        >>> Kernel("mine", dense=lambda children, weight: children).backend
        'mine'
    """

    backend: str
    dense: Callable[..., Capsules] | None = None
    conv: Callable[..., Capsules] | None = None
    unavailable: Unavailable = always_available
    unsupported: Callable[..., str | None] = supports_all
    composite: bool = False
    device: str = "cpu"
    describe: Callable[[], str] = lambda: "torch operations, on any device"
    _accepted: dict[bool, frozenset[str] | None] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if self.backend in ("auto", "reference"):
            raise ConfigError(f"backend: expected a name of its own, got '{self.backend}'")
        accepted = {grid: _parameters(call) for grid, call in ((False, self.dense), (True, self.conv)) if call}
        object.__setattr__(self, "_accepted", accepted)

    def why_unsupported(
        self, children: Capsules, weight: Tensor, window: Window | None, params: dict[str, Any]
    ) -> str | None:
        """Return the reason why the kernel does not compute this case, or None."""
        grid = window is not None
        if grid not in self._accepted:
            return f"the kernel has no {'convolution' if grid else 'dense layer'}"
        accepted = self._accepted[grid]
        if accepted is not None:
            for name in params:
                if name not in accepted:
                    return f"the kernel has no option '{name}'"
        return self.unsupported(children, weight, window=window, **params)


@dataclass(frozen=True)
class Routing:
    """A routing algorithm: its reference, its kernels, and which inputs it reads.

    Args:
        name: Name in `ROUTINGS`.
        steps: The reference, a generator function of the votes.
        kernels: Fast implementations, the preferred one first.
        reads_activations: `steps` takes `activations` [B, I]. Otherwise the length of a child's votes is its presence.
        reads_poses: `steps` takes the children's `poses` [B, I, P].
        takes_bias: `steps` takes a `bias` [J, D] of the parents.

    Example:
        >>> ROUTINGS["em"].reads_activations, ROUTINGS["dynamic"].takes_bias
        (True, True)
    """

    name: str
    steps: Steps
    kernels: tuple[Kernel, ...] = ()
    reads_activations: bool = False
    reads_poses: bool = False
    takes_bias: bool = False
    options: frozenset[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        options = _parameters(self.steps)
        given = {"votes"} | ({"activations"} if self.reads_activations else set())
        given |= {"poses"} if self.reads_poses else set()
        object.__setattr__(self, "options", None if options is None else options - given)

    @property
    def has_softmax(self) -> bool:
        """Whether `steps` takes the softmax over the parents, so that its coupling can be made uniform."""
        return self.options is None or "softmax" in self.options

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of all implementations, available or not: the reference first."""
        return ("reference", *(kernel.backend for kernel in self.kernels))

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ConfigError on an option that the reference does not take."""
        if self.options is not None:
            check_options(options, self.options, f"{self.name} routing")

    def check_backend(self, backend: str) -> None:
        """Raise ConfigError unless `backend` is `auto` or one of `backends`."""
        known = ("auto", *self.backends)
        if backend not in known:
            raise ConfigError(f"backend: expected one of {', '.join(known)} for {self.name} routing, got '{backend}'")


ROUTINGS: Registry[Routing] = Registry("routing")


def register_routing(routing: Routing) -> Routing:
    """Enter a routing in `ROUTINGS` under its name.

    Args:
        routing: The algorithm.

    Returns:
        The same object.

    Raises:
        ConfigError: If the name is taken.

    Example:
        >>> register_routing(routing)  # doctest: +SKIP
    """
    ROUTINGS.add(routing.name, routing)
    return routing
