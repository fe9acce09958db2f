"""The C++ twin of dynamic routing: from poses and weight to parents, without storing votes (see README.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _library
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options, dynamic_routing
from torchcaps.ops.votes import check_poses_and_weight, vote

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def route(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D].

    Types of 16 bits are computed in float32; the result has the type that poses and weight promote to. There are first
    derivatives only: the gradient of a gradient is an error.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).shape
    torch.Size([2, 10, 16])
    """
    check_poses_and_weight(poses, weight)
    check_routing_options(iters, grad)
    if bias is not None and bias.shape != (weight.shape[-3], weight.shape[-1]):
        raise ShapeError(f"bias: expected {(weight.shape[-3], weight.shape[-1])}, got {tuple(bias.shape)}")
    if 0 in poses.shape or 0 in weight.shape:
        # Nothing to compute, but a shape and a graph to give back.
        return dynamic_routing(vote(poses, weight), bias=bias, iters=iters, leaky=leaky, grad=grad).poses
    result = torch.promote_types(poses.dtype, weight.dtype)
    dtype = _library.COMPUTED_IN[result]
    bias = None if bias is None else bias.to(dtype)
    out, _ = _forward(poses.to(dtype), weight.to(dtype), bias, iters, leaky, grad == "last")  # [B, J, D]
    return out.to(result)


def _sizes(poses: Tensor, weight: Tensor, iters: int, leaky: bool, last_only: bool) -> list[int]:
    parents, in_dim, out_dim = weight.shape[-3:]
    shared = weight.dim() == 3
    return [*poses.shape[:2], parents, in_dim, out_dim, iters, int(shared), int(leaky), int(last_only)]


@torch.library.custom_op("torchcaps::dynamic_routing", mutates_args=(), device_types="cpu")
def _forward(
    poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, last_only: bool
) -> tuple[Tensor, Tensor]:
    # Contiguous copies are kept in names until the call is over: the kernel sees addresses only.
    poses, weight = poses.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    out = poses.new_empty(poses.shape[0], weight.shape[-3], weight.shape[-1])  # [B, J, D]
    presquash = poses.new_empty(iters, *out.shape)  # [R, B, J, D]
    sizes = _sizes(poses, weight, iters, leaky, last_only)
    _library.call("dynamic_forward", [poses, weight, bias, out, presquash], sizes, poses.dtype)
    return out, presquash


@_forward.register_fake
def _(
    poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, last_only: bool
) -> tuple[Tensor, Tensor]:
    out = poses.new_empty(poses.shape[0], weight.shape[-3], weight.shape[-1])  # [B, J, D]
    return out, poses.new_empty(iters, *out.shape)  # [R, B, J, D]


@torch.library.custom_op("torchcaps::dynamic_routing_backward", mutates_args=(), device_types="cpu")
def _backward(
    poses: Tensor,
    weight: Tensor,
    presquash: Tensor,
    grad_out: Tensor,
    leaky: bool,
    last_only: bool,
    needed: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    poses, weight, grad_out = poses.contiguous(), weight.contiguous(), grad_out.contiguous()
    grads = _gradients(poses, weight, needed)
    sizes = _sizes(poses, weight, presquash.shape[0], leaky, last_only)
    asked = [grad if need else None for grad, need in zip(grads, needed, strict=True)]
    _library.call("dynamic_backward", [poses, weight, presquash, grad_out, *asked], sizes, poses.dtype)
    return grads


@_backward.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    presquash: Tensor,
    grad_out: Tensor,
    leaky: bool,
    last_only: bool,
    needed: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(poses, weight, needed)


def _gradients(poses: Tensor, weight: Tensor, needed: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients of poses, weight and bias; what nobody asked for is empty."""
    shapes = (poses.shape, weight.shape, (weight.shape[-3], weight.shape[-1]))
    first, second, third = (
        poses.new_empty(shape if need else (0,)) for shape, need in zip(shapes, needed, strict=True)
    )
    return first, second, third


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    poses, weight, bias, _, ctx.leaky, ctx.last_only = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(poses, weight, output[1])


def _differentiate(ctx: Any, grad_out: Tensor, _grad_presquash: Tensor) -> tuple[Tensor | None, ...]:
    needed = list(ctx.needs_input_grad[:3])
    grads = _backward(*ctx.saved_tensors, grad_out, ctx.leaky, ctx.last_only, needed)
    return *(grad if need else None for grad, need in zip(grads, needed, strict=True)), None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)
_backward.register_autograd(_library.refuse_second_derivative)
