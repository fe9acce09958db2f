"""The Triton kernel of dynamic routing, for CUDA. It takes poses and weight and keeps votes in registers.

The logits of a child are not stored: in every iteration they are votes . query, where the query of a parent is the sum
of its poses so far. One pass over the children turns a query into the next presquash, and one more pass per iteration
turns its gradient into the gradient of the query. A last pass, child by child, computes the gradients of poses and
weight from the queries and presquash gradients of all iterations. Intermediate results have the size of the output.
Partial sums are added in a fixed order: two runs give the same bits.

In convolutions, every iteration is one pass with a gradient of its own, as for the other routings.

Tested against the reference in Triton's interpreter only. It has not run on a GPU yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.grid import squash_parents
from torchcaps.ops._flops import dynamic_cost, register_flops
from torchcaps.ops._triton import device
from torchcaps.ops._triton.attend import attend
from torchcaps.ops._triton.layer import Layer, dense_layer, sizes_of
from torchcaps.ops.conv import Window
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options
from torchcaps.ops.squash import SquashForm, squash
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules

if TYPE_CHECKING:
    from torchcaps.ops._triton.launch import Launch


def unsupported(
    children: Capsules, weight: Tensor, *, window: Window | None = None, squash: SquashForm = "standard", **params: Any
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: The weight.
        window: The window of a convolutional layer, or None.
        squash: Form of the squash.
        **params: Other arguments of the routing.

    Returns:
        The reason, or None if it computes the case.
    """
    if window is None and squash != "standard":
        return f"the kernel has the standard squash, got '{squash}'"
    return device.unsupported(children, weight, window=window)


def route(
    layer: Layer,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a convolutional layer; see `dynamic_routing`.

    Args:
        layer: Children and weight.
        bias: Vector added to each parent before it is squashed.
        iters: Number of routing iterations.
        leaky: Add one more parent with logit 0, whose share is dropped.
        grad: `all` differentiates through all iterations, `last` through the last one.
        squash: Form of the squash.

    Shape:
        bias: [J, D]; returns poses [B, positions, J, D], activations [B, positions, J].

    Returns:
        The parents.
    """
    check_routing_options(iters, grad, squash)
    through = grad == "all"
    query, total = None, layer.poses
    for iteration in range(iters):
        total = attend(layer, query, leaky=leaky, through=through)  # [B, positions, J, D]
        if iteration < iters - 1:
            poses = squash_parents(total, bias, squash).poses  # [B, positions, J, D]
            poses = poses if through else poses.detach()  # [B, positions, J, D]
            query = poses if query is None else query + poses  # [B, positions, J, D]
    return squash_parents(total, bias, squash)


def compute(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    iters: int,
    leaky: bool,
    last_only: bool,
    squash: SquashForm = "standard",
) -> Tensor:
    """Compute the parents [B, J, D] of poses [B, I, P] through weight [I, J, P, D] or [J, P, D].

    The kernel has the standard squash alone; `unsupported` refuses the others.

    Sums are kept in float32 for bfloat16 and float16; the result has the type that poses and weight promote to. There
    are first derivatives only: the gradient of a gradient is an error.

    Args:
        poses: Poses of the children [B, I, P].
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        leaky: Whether a child may couple to no parent.
        last_only: Whether gradients flow through the last iteration only.
        squash: Form of the squash function.

    Returns:
        Poses of the parents [B, J, D].
    """
    return _route(poses, weight, bias, iters, leaky, not last_only)[0]


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


def _launch(poses: Tensor, weight: Tensor, leaky: bool, dtype: torch.dtype) -> Launch:
    from torchcaps.ops._triton.launch import Launch

    device.check_device(poses)
    layer = dense_layer(Capsules(poses.contiguous(), poses[..., 0]), weight.contiguous())
    sizes = sizes_of(layer.poses, layer.weight, layer.window)
    tensors: dict[str, Tensor | None] = {"background": poses.new_zeros(1, dtype=dtype)} if leaky else {}
    # The activations have no role, and are not read.
    return Launch(sizes, layer.poses, layer.poses, layer.weight, None, dtype, tensors=tensors)


def _check(poses: Tensor, weight: Tensor, **others: Tensor | None) -> None:
    """Raise unless the tensors belong together, and the kernel can run on their device in their types."""
    _native.check_present(["poses", "weight"], [poses, weight])
    check_poses_and_weight(poses, weight)
    tensors = {"poses": poses, "weight": weight, **others}
    _native.check_alike(list(tensors), list(tensors.values()), mixed=True)


def _check_forward(poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int) -> None:
    _check(poses, weight, bias=bias)
    check_parent_bias(bias, weight)
    if iters < 1:
        raise ConfigError(f"iters: expected a count of at least 1, got {iters}")


def _check_backward(grad: Tensor, poses: Tensor, weight: Tensor, presquash: Tensor) -> None:
    _native.check_present(["grad", "presquash"], [grad, presquash])
    _check(poses, weight, grad=grad, presquash=presquash)
    out = (poses.shape[0], weight.shape[-3], weight.shape[-1])
    if grad.shape != out:
        raise ShapeError(f"grad: expected {out}, got {tuple(grad.shape)}")
    if presquash.dim() != 4 or presquash.shape[1:] != out or not len(presquash):
        raise ShapeError(f"presquash: expected {('R', *out)} with R of at least 1, got {tuple(presquash.shape)}")


@torch.library.custom_op("torchcaps::dynamic_triton", mutates_args=())
def _route(
    poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, through: bool
) -> tuple[Tensor, Tensor]:
    """Parents [B, J, D] and the presquash of every iteration [R, B, J, D], all that the backward pass needs."""
    _check_forward(poses, weight, bias, iters)
    dtype = torch.promote_types(poses.dtype, weight.dtype)
    query = _out_like(poses, weight, dtype=torch.promote_types(dtype, torch.float32)).zero_()  # [B, J, D]
    launch = _launch(poses, weight, leaky, query.dtype)
    kept = []
    for _ in range(iters):
        launch.tensors["key"] = query
        presquash = launch.sum()["total"]  # [B, J, D]
        if bias is not None:
            presquash = presquash + bias  # [B, J, D]
        kept.append(presquash)
        query = query + squash(presquash)  # [B, J, D]
    return squash(kept[-1]).to(dtype), torch.stack(kept)


@_route.register_fake
def _(poses, weight, bias, iters, leaky, through):
    _check_forward(poses, weight, bias, iters)
    dtype = torch.promote_types(poses.dtype, weight.dtype)
    kept = _out_like(poses, weight, iters, dtype=torch.promote_types(dtype, torch.float32))  # [R, B, J, D]
    return _out_like(poses, weight, dtype=dtype), kept


@torch.library.custom_op("torchcaps::dynamic_triton_backward", mutates_args=())
def _route_backward(
    grad: Tensor, poses: Tensor, weight: Tensor, presquash: Tensor, leaky: bool, through: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of poses, weight and bias from that of the parents [B, J, D]."""
    _check_backward(grad, poses, weight, presquash)
    launch = _launch(poses, weight, leaky, presquash.dtype)
    grad = grad.to(presquash.dtype)
    reached = squash(presquash).cumsum(dim=0)  # [R, B, J, D]
    queries = torch.cat([torch.zeros_like(reached[:1]), reached[:-1]])  # [R, B, J, D]
    if not through:
        presquash, queries = presquash[-1:], queries[-1:]
    grads = [_squash_grad(presquash[-1], grad)]
    later = torch.zeros_like(grad)  # [B, J, D]
    # The pose of an iteration is part of the query of all later ones.
    for iteration in reversed(range(1, len(presquash))):
        launch.tensors |= {"key": queries[iteration], "grad": grads[0]}
        later = later + launch.pull()["total"]  # [B, J, D]
        grads.insert(0, _squash_grad(presquash[iteration - 1], later))
    stacked = torch.stack(grads)  # [R, B, J, D]
    launch.tensors |= {"key": queries, "grad": stacked}
    found = launch.spread(through)
    grad_weight = found["weight"].view_as(weight).to(weight.dtype)
    return found["poses"].view_as(poses), grad_weight, stacked.sum(dim=(0, 1))


@_route_backward.register_fake
def _(grad, poses, weight, presquash, leaky, through):
    _check_backward(grad, poses, weight, presquash)
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


def _flops(poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, through: bool) -> int:
    return dynamic_cost(poses, weight, iters, not through).votes * iters


def _backward_flops(grad: Tensor, poses: Tensor, weight: Tensor, presquash: Tensor, leaky: bool, through: bool) -> int:
    return dynamic_cost(poses, weight, len(presquash), not through).gradients(2)


register_flops("dynamic_triton", _flops)
register_flops("dynamic_triton_backward", _backward_flops)
