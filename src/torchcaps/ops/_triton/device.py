"""When the Triton kernels can run, and the `Kernel` made of a routing that is written for them."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops._kernel import Kernel
from torchcaps.ops._triton.layer import Layer, conv_layer, dense_layer
from torchcaps.ops._triton.tiles import MOST_REGISTERS, too_large
from torchcaps.ops.conv import Window
from torchcaps.types import Capsules

# Looked up once: torch.compile and torch.export cannot look into the import system.
_INSTALLED = importlib.util.find_spec("triton") is not None
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why the kernels cannot run on a device in a type, with the remedy, or None."""
    if dtype not in _DTYPES:
        return f"it takes floating-point tensors, got {dtype}; use backend='reference'"
    if not _INSTALLED:
        return "Triton is not installed: pip install 'torchcaps[triton]'"
    if recorded is not None:
        return None
    if device.type != "cuda" and not interpreted():
        return f"it takes CUDA tensors, got them on {device.type}; TRITON_INTERPRET=1 runs it there, slowly"
    if device.type == "cuda" and not torch.cuda.is_available():
        return "there is no CUDA device; use backend='auto'"
    return None


def interpreted() -> bool:
    """Return whether Triton interprets kernels, on any device. It reads this variable when a kernel is defined."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def describe() -> str:
    """Describe the kernels for `torchcaps info`."""
    return "interpreted, slow" if interpreted() else "has not run on a GPU before: please report what you see"


class Call(NamedTuple):
    """One launch of a kernel.

    Args:
        name: `sum`, `pull`, `norm` or `gain`, which are modes of `accumulate`, or `spread`.
        kernel: The kernel.
        programs: Number of programs along two axes.
        arguments: All arguments, in order.
        warps: Warps of a program.
    """

    name: str
    kernel: Any
    programs: tuple[int, int]
    arguments: list[Any]
    warps: int

    @property
    def options(self) -> dict[str, int]:
        """Options of the compiler."""
        return {"num_warps": self.warps, "maxnreg": MOST_REGISTERS[self.warps]}


# The launches of a routing that is recorded instead of run; see `compiled.record`.
recorded: list[Call] | None = None


def call(launch: Call) -> None:
    """Launch a kernel, or record it."""
    if recorded is not None:
        recorded.append(launch)
    else:
        # Triton launches on the current device, which may be another than that of the tensors.
        with torch.cuda.device_of(launch.arguments[0]):
            launch.kernel[launch.programs](*launch.arguments, **launch.options)


def check_device(poses: Tensor) -> None:
    """Raise ConfigError unless the kernels can run on the device of a tensor."""
    if (reason := unavailable(poses.device, poses.dtype)) is not None:
        raise ConfigError(f"backend: expected one that is available, got 'triton' ({reason})")


def unsupported(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    """Return the reason why the kernels do not compute a case, or None."""
    if 0 in children.poses.shape[1:] or 0 in weight.shape:
        return "the kernel has at least one child, one parent and one entry of a pose"
    if window is not None and window.competition == "positions":
        return "the kernel has parents that compete for a child, got competition='positions'"
    vote_rows = weight.shape[-2] if window is not None and window.pose == "matrix" else 1
    return too_large(weight.shape[-2], weight.shape[-3], vote_rows, weight.shape[-1])


def triton_kernel(
    route: Callable[..., Capsules],
    *,
    conv: bool = True,
    unsupported: Callable[..., str | None] = unsupported,
) -> Kernel:
    """Return the kernel of the backend `triton`.

    Args:
        route: `(layer, **params) -> Capsules`, parents [B, positions, J, D] in the type of sums.
        conv: Whether it serves convolutional layers too.
        unsupported: As in `Kernel`.

    Returns:
        The kernel. Its results have the type that poses and weight promote to.
    """

    @functools.wraps(route)
    def run_dense(children: Capsules, weight: Tensor, **params: Any) -> Capsules:
        return _run(route, dense_layer(children, weight), params)

    @functools.wraps(route)
    def run_conv(children: Capsules, weight: Tensor, window: Window, **params: Any) -> Capsules:
        return _run(route, conv_layer(children, weight, window), params)

    return Kernel(
        "triton",
        dense=run_dense,
        conv=run_conv if conv else None,
        unavailable=unavailable,
        unsupported=unsupported,
        any_rank=True,
        device="cuda",
        describe=describe,
    )


def _run(route: Callable[..., Capsules], layer: Layer, params: dict[str, Any]) -> Capsules:
    result = torch.promote_types(layer.poses.dtype, layer.weight.dtype)
    return Capsules(*(layer.shape(part).to(result) for part in route(layer, **params)))
