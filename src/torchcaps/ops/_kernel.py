"""A kernel: a fast implementation of a routing for one backend."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops.conv import Window
from torchcaps.types import Capsules

Unavailable = Callable[[torch.device, torch.dtype], str | None]


def keyword_parameters(function: Callable[..., Any]) -> frozenset[str] | None:
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


def computes_wide(call: Callable[..., Capsules]) -> Callable[..., Capsules]:
    """Let `Kernel.dense` or `Kernel.conv` compute types of 16 bits in float32 from beginning to end.

    Args:
        call: A function of children, weight, in a convolution a window, and options.

    Returns:
        The same function, whose result has the type that poses and weight promote to.
    """

    @functools.wraps(call)
    def run(children: Capsules, weight: Tensor, *window: Window, **params: Any) -> Capsules:
        result = torch.promote_types(children.poses.dtype, weight.dtype)
        dtype = torch.float32 if result.itemsize < 4 else result

        def wide(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.dtype != dtype else value

        options = {name: wide(value) for name, value in params.items()}
        parents = call(Capsules(*map(wide, children)), wide(weight), *window, **options)
        return parents if dtype == result else Capsules(*(part.to(result) for part in parents))

    return run


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
        takes_routing: `dense` and `conv` take the name of the routing as `routing`: the kernel serves them all.
        any_rank: `conv` takes grids of one and three axes too. Others are given a plane; see `Window.plane`.
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
    takes_routing: bool = False
    any_rank: bool = False
    device: str = "cpu"
    describe: Callable[[], str] = lambda: "torch operations, on any device"
    _accepted: dict[bool, frozenset[str] | None] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if self.backend in ("auto", "reference"):
            raise ConfigError(f"backend: expected a name of its own, got '{self.backend}'")
        accepted = {grid: keyword_parameters(call) for grid, call in ((False, self.dense), (True, self.conv)) if call}
        object.__setattr__(self, "_accepted", accepted)

    def why_unsupported(
        self, children: Capsules, weight: Tensor, window: Window | None, params: dict[str, Any]
    ) -> str | None:
        """Return why the kernel does not compute a case.

        Args:
            children: The children.
            weight: The weight.
            window: The window of a convolutional layer, or None.
            params: Arguments of the routing.

        Returns:
            The reason, or None if it computes the case.
        """
        grid = window is not None
        if grid not in self._accepted:
            return f"the kernel has no {'convolution' if grid else 'dense layer'}"
        accepted = self._accepted[grid]
        if accepted is not None:
            for name in params:
                if name not in accepted:
                    return f"the kernel has no option '{name}'"
        if window is not None and not self.any_rank and window.rank != 2:
            if window.plane() is None:
                return "the kernel has grids of two axes"
            if window.offsets is not None and self._vote_size(weight, window) < 2:
                return "the kernel adds offsets to two entries"
        return self.unsupported(children, weight, window=window, **params)

    def run_conv(self, children: Capsules, weight: Tensor, window: Window, params: dict[str, Any]) -> Capsules:
        """Run `conv`; a grid that is no plane is viewed as one, unless the kernel takes any rank.

        Args:
            children: A grid of children.
            weight: The weight.
            window: The window.
            params: Arguments of the routing.

        Returns:
            The grid of parents.
        """
        assert self.conv is not None
        plane = window if self.any_rank else window.plane()
        assert plane is not None
        if plane is window:
            return self.conv(children, weight, window, **params)
        viewed = Capsules(*(part.flatten(1, window.rank).unflatten(1, plane.grid) for part in children))
        parents = self.conv(viewed, weight, plane, **params)
        return Capsules(*(part.flatten(1, 2).unflatten(1, window.positions) for part in parents))

    @staticmethod
    def _vote_size(weight: Tensor, window: Window) -> int:
        return weight.shape[-1] * (weight.shape[-2] if window.pose == "matrix" else 1)
