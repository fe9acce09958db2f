"""The C++ twin of self-routing: sums of votes whose share is known, without storing votes (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _library
from torchcaps.ops.self_routing import lean
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

    16 bits are computed in float32. With a weight for each child there are first derivatives, and the gradient of a
    gradient is an error.

    >>> poses, activations, weight = torch.randn(2, 5, 8), torch.rand(2, 5), torch.randn(5, 3, 8, 4)
    >>> out = route(poses, weight, activations=activations, route_weight=torch.ones(3, 8))
    >>> out.poses.shape
    torch.Size([2, 3, 4])
    """
    check_poses_and_weight(poses, weight)
    if weight.dim() == 3:
        # Poses can be added up before they vote: two small products, and nothing left for a kernel to gain.
        return lean.route(poses, weight, activations=activations, route_weight=route_weight, route_bias=route_bias)
    logits = routing_logits(poses, route_weight, route_bias)  # [B, I, J]
    if logits.shape[2] != weight.shape[1]:
        raise ShapeError(f"route_weight: expected {weight.shape[1]} parents, got {tuple(route_weight.shape)}")
    if activations.shape != poses.shape[:2]:
        raise ShapeError(f"activations: expected {tuple(poses.shape[:2])}, got {tuple(activations.shape)}")
    # With the samples last, as the kernel takes them; the first logits are not needed longer.
    logits = logits.permute(1, 2, 0).contiguous()  # [I, J, B]
    inputs = [logits, activations.T, poses, weight]
    result = torch.promote_types(torch.promote_types(logits.dtype, poses.dtype), weight.dtype)
    dtype = _library.COMPUTED_IN[result]
    total, mass = _forward(*(tensor.to(dtype) for tensor in inputs))  # [B, J, D], [J, B]
    mass, present = mass.T, activations.to(dtype).sum(dim=1, keepdim=True)  # [B, J], [B, 1]
    out = total / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out.to(result), (mass / (present + MASS_FLOOR)).to(result))


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


@torch.library.custom_op("torchcaps::self_routing", mutates_args=(), device_types="cpu")
def _forward(logits: Tensor, activations: Tensor, poses: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of weighed votes [B, J, D] and of shares [J, B], from logits [I, J, B] and activations [I, B].

    It keeps logits alone for the backward pass, and makes coupling and share again.
    """
    share = logits.softmax(dim=1).mul_(activations.unsqueeze(1))  # [I, J, B]
    total = poses.new_empty(poses.shape[0], weight.shape[1], weight.shape[3])  # [B, J, D]
    _run("forward", [share, poses, weight], [total])
    return total, share.sum(dim=0)


@_forward.register_fake
def _(logits: Tensor, activations: Tensor, poses: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return poses.new_empty(poses.shape[0], weight.shape[1], weight.shape[3]), logits.new_empty(logits.shape[1:])


@torch.library.custom_op("torchcaps::self_routing_backward", mutates_args=(), device_types="cpu")
def _backward(
    inputs: list[Tensor], grad_total: Tensor, grad_mass: Tensor, needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits, activations, poses, weight = inputs
    given = activations.unsqueeze(1)  # [I, 1, B]
    grads = _gradients(inputs, needed)
    # That of the share is made where that of the logits will be.
    of_share = grads[0] if needed[0] else logits.new_empty(logits.shape) if needed[1] else None
    asked = [grad if need else None for grad, need in zip(grads, needed, strict=True)]
    share = logits.softmax(dim=1).mul_(given)  # [I, J, B]
    _run("backward", [share, poses, weight, grad_total], [of_share, *asked[2:]])
    if of_share is not None:
        # Made again where the share was: a softmax costs little, another tensor of this size would raise the peak.
        coupling = torch.softmax(logits, dim=1, out=share)
        # With g that of the share: c g is summed for the activation, and c (g - sum of c g) a remains for the logit.
        of_share.add_(grad_mass).mul_(coupling)
        total = of_share.sum(dim=1)  # [I, B]
        if needed[1]:
            grads[1].copy_(total)
        of_share.sub_(coupling.mul_(total.unsqueeze(1))).mul_(given)
    return grads


@_backward.register_fake
def _(
    inputs: list[Tensor], grad_total: Tensor, grad_mass: Tensor, needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients(inputs, needed)


def _gradients(inputs: list[Tensor], needed: list[bool]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the gradients of logits, activations, poses and weight; what nobody asked for is empty."""
    first, second, third, fourth = (
        tensor.new_empty(tensor.shape if need else (0,)) for tensor, need in zip(inputs, needed, strict=True)
    )
    return first, second, third, fourth


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad_total: Tensor, grad_mass: Tensor) -> tuple[Tensor | None, ...]:
    needed = list(ctx.needs_input_grad[:4])
    grads = _backward(list(ctx.saved_tensors), grad_total, grad_mass, needed)
    return tuple(grad if need else None for grad, need in zip(grads, needed, strict=True))


_forward.register_autograd(_differentiate, setup_context=_setup_context)
_backward.register_autograd(_library.refuse_second_derivative)
