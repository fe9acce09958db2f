"""The Triton twin of dynamic routing, for CUDA: poses and weight in, parents out, votes only ever in registers.

The logits of a child need not be kept: after some iterations they are votes . query, where the query of a parent is the
sum of the poses that it had so far. One pass over the children therefore turns a query into the next presquash, and one
more pass per iteration turns its gradient into the gradient of the query. A last pass, child by child, makes the
gradients of poses and weight from the queries and presquash gradients of all iterations. What is kept in between has
the size of the output. Partial sums are added in a fixed order: two runs give the same bits.

Held to the reference in Triton's interpreter only: it has not run on a GPU yet.
"""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options, dynamic_routing
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_poses_and_weight, vote

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where this twin can serve, otherwise the reason and the remedy."""
    if dtype not in _DTYPES:
        return f"it takes floating-point tensors, got {dtype}; use backend='reference'"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'torchcaps[triton]'"
    if device.type != "cuda" and not _interpreted():
        return f"it takes CUDA tensors, got them on {device.type}; TRITON_INTERPRET=1 runs it there, slowly"
    if device.type == "cuda" and not torch.cuda.is_available():
        return "there is no CUDA device; use backend='auto'"
    return None


def describe() -> str:
    """What there is to say about the kernel where it is available."""
    return "interpreted, slow" if _interpreted() else "has not run on a GPU before: please report what you see"


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

    Sums are kept in float32 for bfloat16 and float16; the result has the type that poses and weight promote to. There
    are first derivatives only: the gradient of a gradient is an error.
    """
    check_poses_and_weight(poses, weight)
    check_routing_options(iters, grad)
    if bias is not None and bias.shape != (weight.shape[-3], weight.shape[-1]):
        raise ShapeError(f"bias: expected {(weight.shape[-3], weight.shape[-1])}, got {tuple(bias.shape)}")
    if 0 in poses.shape or 0 in weight.shape:
        # Nothing to compute, but a shape and a graph to give back.
        return dynamic_routing(vote(poses, weight), bias=bias, iters=iters, leaky=leaky, grad=grad).poses
    return _route(poses, weight, bias, iters, leaky, grad == "all")[0]


def _interpreted() -> bool:
    # Triton looks at this variable when a kernel is defined, that is once, at the first use of this twin.
    return os.environ.get("TRITON_INTERPRET") == "1"


def _kernels() -> ModuleType:
    from torchcaps.ops.dynamic import _triton_kernels

    return _triton_kernels


def _out_like(poses: Tensor, weight: Tensor, *leading: int, dtype: torch.dtype) -> Tensor:
    """An empty tensor [..., B, J, D]."""
    return poses.new_empty(*leading, poses.shape[0], weight.shape[-3], weight.shape[-1], dtype=dtype)


def _squash_grad(presquash: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the presquash [B, J, D]; with n = |s| the squash is s n / (1 + n^2)."""
    square = presquash.square().sum(dim=-1, keepdim=True)  # [B, J, 1]
    length = square.sqrt()  # [B, J, 1]
    along = (presquash * grad).sum(dim=-1, keepdim=True) * (1 - square) / (1 + square).square()  # [B, J, 1]
    turned = torch.where(length == 0, 0, presquash / length)  # [B, J, D]
    return grad * (length / (1 + square)) + turned * along  # [B, J, D]


@torch.library.custom_op("torchcaps::dynamic_triton", mutates_args=())
def _route(
    poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, through: bool
) -> tuple[Tensor, Tensor]:
    """Parents [B, J, D] and the presquash of every iteration [R, B, J, D], all that the backward pass needs."""
    kernels = _kernels()
    poses, weight = poses.contiguous(), weight.contiguous()
    dtype = torch.promote_types(poses.dtype, weight.dtype)
    query = _out_like(poses, weight, dtype=torch.promote_types(dtype, torch.float32)).zero_()  # [B, J, D]
    kept = []
    for _ in range(iters):
        presquash = kernels.run_pass(poses, weight, query, None, leaky)  # [B, J, D]
        if bias is not None:
            presquash = presquash + bias  # [B, J, D]
        kept.append(presquash)
        query = query + squash(presquash)  # [B, J, D]
    return squash(kept[-1]).to(dtype), torch.stack(kept)


@_route.register_fake
def _(poses, weight, bias, iters, leaky, through):
    dtype = torch.promote_types(poses.dtype, weight.dtype)
    kept = _out_like(poses, weight, iters, dtype=torch.promote_types(dtype, torch.float32))  # [R, B, J, D]
    return _out_like(poses, weight, dtype=dtype), kept


@torch.library.custom_op("torchcaps::dynamic_triton_backward", mutates_args=())
def _route_backward(
    grad: Tensor, poses: Tensor, weight: Tensor, presquash: Tensor, leaky: bool, through: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of poses, weight and bias from that of the parents [B, J, D]."""
    kernels = _kernels()
    poses, weight = poses.contiguous(), weight.contiguous()
    grad = grad.to(presquash.dtype)
    reached = squash(presquash).cumsum(dim=0)  # [R, B, J, D]
    queries = torch.cat([torch.zeros_like(reached[:1]), reached[:-1]])  # [R, B, J, D]
    if not through:
        presquash, queries = presquash[-1:], queries[-1:]
    grads = [_squash_grad(presquash[-1], grad)]
    later = torch.zeros_like(grad)  # [B, J, D]
    # The pose of an iteration is part of the query of all later ones.
    for iteration in reversed(range(1, len(presquash))):
        later = later + kernels.run_pass(poses, weight, queries[iteration], grads[0], leaky)  # [B, J, D]
        grads.insert(0, _squash_grad(presquash[iteration - 1], later))
    stacked = torch.stack(grads)  # [R, B, J, D]
    grad_poses, grad_weight = kernels.run_spread(poses, weight, queries, stacked, leaky, through)
    return grad_poses, grad_weight, stacked.sum(dim=(0, 1))


@_route_backward.register_fake
def _(grad, poses, weight, presquash, leaky, through):
    return (
        torch.empty_like(poses, memory_format=torch.contiguous_format),
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        presquash.new_empty(presquash.shape[2:]),
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    poses, weight, bias, _, ctx.leaky, ctx.through = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(poses, weight, output[1])


def _differentiate(ctx: Any, grad: Tensor, _grad_presquash: Tensor) -> tuple[Tensor | None, ...]:
    grad_poses, grad_weight, grad_bias = _route_backward(grad, *ctx.saved_tensors, ctx.leaky, ctx.through)
    return grad_poses, grad_weight, None if ctx.bias_dtype is None else grad_bias.to(ctx.bias_dtype), None, None, None


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise ConfigError(
        "backend: expected 'reference' for the gradient of a gradient, got 'triton' (first derivatives only)"
    )


_route.register_autograd(_differentiate, setup_context=_keep)
_route_backward.register_autograd(_refuse)
