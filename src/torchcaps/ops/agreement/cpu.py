"""One pass of routing by agreement in C++, differentiable, without storing votes (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _library
from torchcaps.ops.votes import check_poses_and_weight


def agree(poses: Tensor, weight: Tensor, key: Tensor | None = None, prior: Tensor | None = None) -> Tensor:
    """What each parent hears, total_j = sum_i (coupling_ij + prior_ij) votes_ij, with votes_ij = poses_i weight_ij.

    coupling = softmax over parents of votes . key; without a key it is uniform, and there is no prior then. poses
    [B, I, P], weight [I, J, P, D] or [J, P, D], key [B, J, D] and prior [I, J] give the total [B, J, D], in the type
    that poses and weight promote to; 16 bits are computed in float32. All four have first derivatives; the gradient of
    a gradient is an error.

    >>> agree(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16), torch.zeros(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """
    check_poses_and_weight(poses, weight)
    parents, _, size = weight.shape[-3:]
    if key is not None and key.shape != (poses.shape[0], parents, size):
        raise ShapeError(f"key: expected {(poses.shape[0], parents, size)}, got {tuple(key.shape)}")
    if prior is not None and (key is None or prior.shape != (poses.shape[1], parents)):
        raise ShapeError(f"prior: expected a key and {(poses.shape[1], parents)}, got {tuple(prior.shape)}")
    result = torch.promote_types(poses.dtype, weight.dtype)
    dtype = _library.COMPUTED_IN[result]
    key, prior = (None if tensor is None else tensor.to(dtype) for tensor in (key, prior))
    return _forward(poses.to(dtype), weight.to(dtype), key, prior).to(result)  # [B, J, D]


def _run(name: str, tensors: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
    # Contiguous copies are kept in a name until the call is over: the kernel sees addresses only.
    given = [None if tensor is None else tensor.contiguous() for tensor in tensors]
    poses, weight = given[:2]
    assert poses is not None
    assert weight is not None
    sizes = [*poses.shape[:2], *weight.shape[-3:], int(weight.dim() == 3)]
    if 0 in sizes[:5]:
        # Without samples or children there is nothing to add up.
        _ = [result.zero_() for result in results if result is not None]
        return
    _library.call(f"agree_{name}", [*given, *results], sizes, poses.dtype)


@torch.library.custom_op("torchcaps::agree", mutates_args=(), device_types="cpu")
def _forward(poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None) -> Tensor:
    total = poses.new_empty(poses.shape[0], weight.shape[-3], weight.shape[-1])  # [B, J, D]
    _run("forward", [poses, weight, key, prior], [total])
    return total


@_forward.register_fake
def _(poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None) -> Tensor:
    return poses.new_empty(poses.shape[0], weight.shape[-3], weight.shape[-1])  # [B, J, D]


@torch.library.custom_op("torchcaps::agree_backward", mutates_args=(), device_types="cpu")
def _backward(
    poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None, grad: Tensor, needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grads = _gradients([poses, weight, key, prior], needed)
    asked = [grad if need else None for grad, need in zip(grads, needed, strict=True)]
    _run("backward", [poses, weight, key, prior, grad], asked)
    return grads


@_backward.register_fake
def _(
    poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None, grad: Tensor, needed: list[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients([poses, weight, key, prior], needed)


def _gradients(inputs: list[Tensor | None], needed: list[bool]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for the gradients of poses, weight, key and prior; what nobody asked for is empty."""
    like = inputs[0]
    assert like is not None
    first, second, third, fourth = (
        like.new_empty(tensor.shape if need and tensor is not None else (0,))
        for tensor, need in zip(inputs, needed, strict=True)
    )
    return first, second, third, fourth


def _setup_context(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needed = list(ctx.needs_input_grad[:4])
    grads = _backward(*ctx.saved_tensors, grad, needed)
    return tuple(grad if need else None for grad, need in zip(grads, needed, strict=True))


_forward.register_autograd(_differentiate, setup_context=_setup_context)
_backward.register_autograd(_library.refuse_second_derivative)
