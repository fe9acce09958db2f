"""The C++ twin of self-routing: sums of votes whose share is known, without storing votes (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _library
from torchcaps.ops.self_routing.reference import MASS_FLOOR, routing_logits
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def route(
    poses: Tensor,
    weight: Tensor,
    *,
    activations: Tensor,
    route_weight: Tensor,
    route_bias: Tensor | None = None,
) -> Capsules:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `self_routing`.

    >>> poses, activations, weight = torch.randn(2, 5, 8), torch.rand(2, 5), torch.randn(5, 3, 8, 4)
    >>> out = route(poses, weight, activations=activations, route_weight=torch.ones(3, 8))
    >>> out.poses.shape
    torch.Size([2, 3, 4])
    """
    logits = routing_logits(poses, route_weight, route_bias)  # [B, I, J]
    # With the samples last, as the kernel takes them.
    share = logits.permute(1, 2, 0).softmax(dim=1) * activations.T.unsqueeze(1)  # [I, J, B]
    mass = share.sum(dim=0).T  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = weigh(share, poses, weight) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out, presence)


def weigh(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    """The sum of all votes for each parent, total_j = sum_i share_ij poses_i weight_ij.

    share [I, J, B], poses [B, I, P] and weight [I, J, P, D], or [J, P, D] shared by all children, give [B, J, D], in
    the type that they promote to; 16 bits are computed in float32. With a weight for each child there are first
    derivatives, and the gradient of a gradient is an error.

    >>> weigh(torch.ones(5, 3, 2), torch.ones(2, 5, 8), torch.ones(5, 3, 8, 16)).shape
    torch.Size([2, 3, 16])
    """
    check_poses_and_weight(poses, weight)
    expected = (poses.shape[1], weight.shape[-3], poses.shape[0])
    if share.shape != expected:
        raise ShapeError(f"share: expected {expected}, got {tuple(share.shape)}")
    result = torch.promote_types(torch.promote_types(share.dtype, poses.dtype), weight.dtype)
    dtype = _library.COMPUTED_IN[result]
    share, poses, weight = share.to(dtype), poses.to(dtype), weight.to(dtype)
    if weight.dim() == 3:
        # Poses can be added up before they vote, which is D times less work.
        total = torch.einsum("bjp,jpd->bjd", torch.einsum("ijb,bip->bjp", share, poses), weight)  # [B, J, D]
    else:
        total = _forward(share, poses, weight)  # [B, J, D]
    return total.to(result)


def _run(name: str, tensors: Sequence[Tensor], results: Sequence[Tensor | None]) -> None:
    # Contiguous copies are kept in a name until the call is over: the kernel sees addresses only.
    given = [tensor.contiguous() for tensor in tensors]
    _, poses, weight = given[:3]
    sizes = [*poses.shape[:2], *weight.shape[1:]]
    if 0 in sizes:
        # Without samples or children there is nothing to add up.
        _ = [result.zero_() for result in results if result is not None]
        return
    _library.call(f"weigh_{name}", [*given, *results], sizes, poses.dtype)


@torch.library.custom_op("torchcaps::weigh", mutates_args=(), device_types="cpu")
def _forward(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    total = poses.new_empty(poses.shape[0], weight.shape[1], weight.shape[3])  # [B, J, D]
    _run("forward", [share, poses, weight], [total])
    return total


@_forward.register_fake
def _(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    return poses.new_empty(poses.shape[0], weight.shape[1], weight.shape[3])  # [B, J, D]


@torch.library.custom_op("torchcaps::weigh_backward", mutates_args=(), device_types="cpu")
def _backward(
    share: Tensor, poses: Tensor, weight: Tensor, grad: Tensor, needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    grads = _gradients([share, poses, weight], needed)
    asked = [grad if need else None for grad, need in zip(grads, needed, strict=True)]
    _run("backward", [share, poses, weight, grad], asked)
    return grads


@_backward.register_fake
def _(share: Tensor, poses: Tensor, weight: Tensor, grad: Tensor, needed: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients([share, poses, weight], needed)


def _gradients(inputs: list[Tensor], needed: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients of share, poses and weight; what nobody asked for is empty."""
    of_share, of_poses, of_weight = (
        tensor.new_empty(tensor.shape if need else (0,)) for tensor, need in zip(inputs, needed, strict=True)
    )
    return of_share, of_poses, of_weight


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needed = list(ctx.needs_input_grad[:3])
    grads = _backward(*ctx.saved_tensors, grad, needed)
    return tuple(grad if need else None for grad, need in zip(grads, needed, strict=True))


_forward.register_autograd(_differentiate, setup_context=_setup_context)
_backward.register_autograd(_library.refuse_second_derivative)
