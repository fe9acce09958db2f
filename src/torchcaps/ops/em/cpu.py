"""The C++ twin of EM routing over a grid: votes recomputed from 4x4 products and never stored (see README.md)."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops.conv import Window
from torchcaps.ops.dynamic import cpu as kernels
from torchcaps.ops.em.reference import MASS_FLOOR
from torchcaps.types import Capsules

SIDE = 4


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where the kernel can serve, otherwise the reason and the remedy."""
    return kernels.why_not(device, dtype)


def describe() -> str:
    """The instruction set that the kernel uses: `avx512`, `avx2` or `portable`."""
    return kernels.describe()


def convolve(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    inverse_temp: tuple[float, ...],
    variance_floor: float,
) -> Capsules:
    """From a grid of children [B, H, W, I, 16] through weight [K*K*I, J, 4, 4], or [I, J, 4, 4], to parents.

    Diagonal covariance, no momentum. Types of 16 bits are computed in float32. First derivatives only: the gradient of a
    gradient is an error.
    """
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = kernels._COMPUTED_IN[result]
    betas = torch.stack([beta_u, beta_a])  # [2, J]
    poses, activations, _ = _forward(
        *(tensor.to(dtype) for tensor in (*children, weight, betas)),
        None if window.offsets is None else window.offsets.to(dtype),
        list(window.kernel),
        window.stride,
        window.competition == "local",
        [variance_floor, MASS_FLOOR, *inverse_temp],
    )
    return Capsules(poses.to(result), activations.to(result))


def _call(name: str, tensors: list[Tensor | None], sizes: list[int], dtype: torch.dtype) -> None:
    function = _function(name, dtype)
    pointers = [ctypes.c_void_p(0 if tensor is None else tensor.data_ptr()) for tensor in tensors]
    if function(*pointers, (ctypes.c_int64 * len(sizes))(*sizes), torch.get_num_threads()) != 0:
        raise MemoryError(f"EM routing of {sizes[0]} samples on a grid of {sizes[1]}x{sizes[2]} found no memory")


def _function(name: str, dtype: torch.dtype):
    if kernels._library is None:
        raise ConfigError(f"backend: expected one that is available, got 'cpu' ({kernels.describe()})")
    return getattr(kernels._library, f"torchcaps_em_{name}_{kernels._SUFFIX[dtype]}")


def _sizes(poses: Tensor, weight: Tensor, kernel: list[int], stride: int, local: bool, iters: int) -> list[int]:
    height, width, types = poses.shape[1:4]
    rows, columns = (height - kernel[0]) // stride + 1, (width - kernel[1]) // stride + 1
    shared = weight.shape[0] == types
    return [
        *poses.shape[:4], rows, columns, *kernel, stride, weight.shape[1], iters, int(shared), int(local),
    ]  # fmt: skip


def _kept(sizes: list[int], dtype: torch.dtype) -> int:
    function = _function("kept", dtype)
    function.restype = ctypes.c_int64
    return function((ctypes.c_int64 * len(sizes))(*sizes))


@torch.library.custom_op("torchcaps::em_routing", mutates_args=(), device_types="cpu")
def _forward(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    kernel: list[int],
    stride: int,
    local: bool,
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor]:
    poses, activations, weight, betas = (tensor.contiguous() for tensor in (poses, activations, weight, betas))
    sizes = _sizes(poses, weight, kernel, stride, local, len(constants) - 2)
    out = poses.new_empty(poses.shape[0], *sizes[4:6], weight.shape[1], SIDE * SIDE)  # [B, H', W', J, 16]
    active = poses.new_empty(out.shape[:-1])  # [B, H', W', J]
    kept = poses.new_empty(poses.shape[0], _kept(sizes, poses.dtype))
    numbers = poses.new_tensor(constants)
    _call("forward", [poses, activations, weight, betas, offsets, numbers, out, active, kept], sizes, poses.dtype)
    return out, active, kept


@torch.library.custom_op("torchcaps::em_routing_backward", mutates_args=(), device_types="cpu")
def _backward(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    kept: Tensor,
    grad_out: Tensor,
    grad_active: Tensor,
    kernel: list[int],
    stride: int,
    local: bool,
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    poses, activations, weight, betas = (tensor.contiguous() for tensor in (poses, activations, weight, betas))
    grad_out, grad_active = grad_out.contiguous(), grad_active.contiguous()
    sizes = _sizes(poses, weight, kernel, stride, local, len(constants) - 2)
    first, second, third, fourth = (torch.empty_like(tensor) for tensor in (poses, activations, weight, betas))
    numbers = poses.new_tensor(constants)
    given = [poses, activations, weight, betas, offsets, numbers, kept, grad_out, grad_active]
    _call("backward", [*given, first, second, third, fourth], sizes, poses.dtype)
    return first, second, third, fourth


def _setup_context(ctx, inputs, output) -> None:
    poses, activations, weight, betas, offsets, ctx.kernel, ctx.stride, ctx.local, ctx.constants = inputs
    ctx.save_for_backward(poses, activations, weight, betas, offsets, output[2])


def _differentiate(ctx, grad_out: Tensor, grad_active: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    grads = _backward(*ctx.saved_tensors, grad_out, grad_active, ctx.kernel, ctx.stride, ctx.local, ctx.constants)
    return *grads, None, None, None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)
