"""The choice of a backend: availability, function transforms and support, looked up per call."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcaps.errors import ConfigError
from torchcaps.ops._kernel import Kernel, Unavailable
from torchcaps.ops._pieces import worth_recomputing
from torchcaps.ops._recompute import RECOMPUTE, RECOMPUTE_NAMED
from torchcaps.ops._routing import ROUTINGS, Routing
from torchcaps.ops.conv import Window
from torchcaps.types import Capsules


def choose_kernel(
    routing: Routing,
    backend: str,
    children: Capsules,
    weight: Tensor,
    window: Window | None,
    params: dict[str, Any],
) -> Kernel | None:
    """Choose the implementation of one call: a kernel, or None for the reference.

    Raises ConfigError where a kernel is named that does not exist, is not available or does not support the case.
    """
    if backend == "reference":
        return None
    if backend != "auto":
        routing.check_backend(backend)
    device, dtype = children.poses.device, torch.promote_types(children.poses.dtype, weight.dtype)
    chosen, reason = None, None
    for kernel in kernels_of(routing, backend):
        if backend not in ("auto", kernel.backend):
            continue
        reason = unavailable_reason(kernel, device, dtype)
        if reason is None and not kernel.composite:
            reason = transform_reason()
        if reason is None:
            reason = kernel.why_unsupported(children, weight, window, params)
        if reason is None:
            chosen = kernel
            break
    if backend != "auto":
        if chosen is None:
            raise ConfigError(f"backend: expected one that can serve, got '{backend}' ({reason})")
        return chosen
    if chosen is None and torch.compiler.is_exporting():
        # The number of votes is a symbol there; comparing it would fix the batch size.
        return None
    generic = chosen is RECOMPUTE
    large = (chosen is None or generic) and worth_recomputing(children.poses, weight, window)
    if device.type == "cpu" and (chosen is None or chosen.backend != "cpu"):
        _warn_missing(routing, device, window)
    if chosen is None and large and transform_reason() is not None:
        _warn_stored(routing)
    # With few votes `recompute` saves little memory, and computes them twice.
    return None if generic and not large else chosen


def kernels_of(routing: Routing, backend: str = "auto") -> tuple[Kernel, ...]:
    """Return all kernels of a routing, the preferred one first and last `recompute`, which runs its reference."""
    return (*routing.kernels, RECOMPUTE if backend == "auto" else RECOMPUTE_NAMED)


# Reasons by check, device type and dtype: availability does not change while a process runs.
_REASONS: dict[tuple[Unavailable, str, torch.dtype], str | None] = {}


def unavailable_reason(kernel: Kernel, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why a kernel cannot run on a device in a type, or None; the first answer is kept."""
    if torch.compiler.is_compiling():
        return kernel.unavailable(device, dtype)
    key = (kernel.unavailable, device.type, dtype)
    if key not in _REASONS:
        _REASONS[key] = kernel.unavailable(device, dtype)
    return _REASONS[key]


def forget_reasons() -> None:
    """Ask the kernels again whether they are available, at their next call."""
    _REASONS.clear()


def transforms_active() -> bool:
    """Return whether the call happens inside a `torch.func` transform such as grad, vmap or jvp.

    Returns:
        True inside a transform.

    Example:
        >>> transforms_active()
        False
    """
    return torch._C._are_functorch_transforms_active()


def transform_reason() -> str | None:
    """Return why only torch operations work at this moment, or None.

    A compiled kernel has a backward pass and no other derivative rule: function transforms would fail in it and
    forward-mode derivatives would be silently zero. Exported graphs must not depend on an operator of this package.
    """
    if transforms_active():
        return "it does not work under torch.func transforms (grad, vmap, jvp, ...); use backend='reference'"
    if forward_ad._current_level >= 0:
        return "it has no forward-mode derivative; use backend='reference'"
    # The older ONNX exporter traces; asking it outside a trace costs more than all other checks.
    if torch.compiler.is_exporting() or (torch._C._get_tracing_state() is not None and torch.onnx.is_in_onnx_export()):
        return "it cannot be exported; use backend='reference'"
    return None


def fastest_backend(algorithm: str, device: torch.device, dtype: torch.dtype) -> str:
    """Return the backend that `auto` takes first on a device in a type.

    Args:
        algorithm: Name of a routing in `ROUTINGS`.
        device: Device of the tensors.
        dtype: Type of the tensors.

    Returns:
        Name of the first available kernel, or `reference`. Sizes and options may still rule the kernel out.

    Raises:
        UnknownNameError: If there is no such routing.

    Example:
        >>> fastest_backend("dynamic", torch.device("cpu"), torch.float32)
        'cpu'
    """
    for kernel in kernels_of(ROUTINGS[algorithm]):
        if unavailable_reason(kernel, device, dtype) is None:
            return kernel.backend
    return "reference"


class KernelStatus(NamedTuple):
    """A kernel as `torchcaps info` lists it.

    Args:
        algorithm: Name of the routing.
        backend: Name of the backend.
        available: Whether it can run here, in float32 on the device it is made for.
        detail: Description of the kernel, or the reason why it is not available.
    """

    algorithm: str
    backend: str
    available: bool
    detail: str


def list_kernels() -> list[KernelStatus]:
    """List every kernel and whether it can run here.

    Returns:
        One entry per routing and backend.

    Example:
        >>> [kernel.backend for kernel in list_kernels() if kernel.algorithm == "dynamic"]
        ['triton', 'cpu', 'recompute']
    """
    rows: list[KernelStatus] = []
    for name in ROUTINGS:
        for kernel in {kernel.backend: kernel for kernel in kernels_of(ROUTINGS[name])}.values():
            reason = unavailable_reason(kernel, torch.device(kernel.device), torch.float32)
            rows.append(KernelStatus(name, kernel.backend, reason is None, reason or kernel.describe()))
    return rows


_warned = False
_warned_stored = False


def _warn_missing(routing: Routing, device: torch.device, window: Window | None) -> None:
    """Warn once per process where another implementation serves because the compiled CPU kernel is missing."""
    global _warned
    if _warned or torch.compiler.is_compiling() or transform_reason() is not None:
        return
    for kernel in routing.kernels:
        serves = kernel.backend == "cpu" and (kernel.dense if window is None else kernel.conv) is not None
        reason = unavailable_reason(kernel, device, torch.float32) if serves else None
        if reason is not None:
            _warned = True
            warnings.warn(f"routing runs without its CPU kernel, many times slower ({reason})", stacklevel=2)


def _warn_stored(routing: Routing) -> None:
    """Warn once per process where a transform needs the reference and the votes are large."""
    global _warned_stored
    if _warned_stored or torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return
    _warned_stored = True
    warnings.warn(f"{routing.name} routing stores all votes: {transform_reason()}", stacklevel=2)
