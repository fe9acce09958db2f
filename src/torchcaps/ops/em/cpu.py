"""The C++ twin of EM routing over a grid: votes recomputed from 4x4 products and never stored (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _library
from torchcaps.ops.conv import Window
from torchcaps.ops.em.reference import MASS_FLOOR
from torchcaps.types import Capsules

SIDE = 4
# What the kernel keeps of a parent in an iteration: mean and variance, mass, half the log-determinant, activity.
_KEPT = 2 * SIDE * SIDE + 3

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def convolve(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    inverse_temp: Sequence[float],
    variance_floor: float = 0.1,
) -> Capsules:
    """From a grid of children [B, H, W, I, 16] through weight [K*K*I, J, 4, 4], or [I, J, 4, 4], to parents.

    Gives poses [B, H', W', J, 16] and their activations. The covariance is diagonal, and there is no momentum. Types of
    16 bits are computed in float32. First derivatives only: the gradient of a gradient is an error.

    >>> children = Capsules(torch.ones(2, 5, 5, 3, 16), torch.ones(2, 5, 5, 3))
    >>> betas = {"beta_u": torch.zeros(7), "beta_a": torch.zeros(7)}
    >>> convolve(children, torch.ones(27, 7, 4, 4), Window((5, 5), (3, 3)), inverse_temp=[1.0], **betas).poses.shape
    torch.Size([2, 3, 3, 7, 16])
    """
    types, places = children.poses.shape[3], window.kernel[0] * window.kernel[1]
    if weight.shape[0] not in (types, types * places) or weight.shape[2:] != (SIDE, SIDE):
        raise ShapeError(
            f"weight: expected [{types * places}, J, 4, 4] or [{types}, J, 4, 4], got {tuple(weight.shape)}"
        )
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = _library.COMPUTED_IN[result]
    poses, activations, _ = _forward(
        children.poses.to(dtype),
        children.activations.to(dtype),
        weight.to(dtype),
        torch.stack([beta_u, beta_a]).to(dtype),
        None if window.offsets is None else window.offsets.to(dtype),
        [*window.kernel, window.stride, int(window.competition == "local")],
        [variance_floor, MASS_FLOOR, *inverse_temp],
    )
    return Capsules(poses.to(result), activations.to(result))


def _call(name: str, poses: Tensor, weight: Tensor, others: list[Tensor | None], window: list[int], iters: int) -> None:
    rows, columns = _positions(poses, window)
    *kernel, stride, local = window
    shared = weight.shape[0] == poses.shape[3]
    sizes = [*poses.shape[:4], rows, columns, *kernel, stride, weight.shape[1], iters, int(shared), local]
    _library.call(f"em_{name}", [poses, weight, *others], sizes, poses.dtype)


def _positions(poses: Tensor, window: list[int]) -> tuple[int, int]:
    height, width, stride, _ = window
    return (poses.shape[1] - height) // stride + 1, (poses.shape[2] - width) // stride + 1


def _room(poses: Tensor, weight: Tensor, window: list[int], iters: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the parents' poses and activations, and for what the gradients need of each iteration."""
    rows, columns = _positions(poses, window)
    batch, parents = poses.shape[0], weight.shape[1]
    out = poses.new_empty(batch, rows, columns, parents, SIDE * SIDE)  # [B, H', W', J, 16]
    lanes = int(_library.function("em_lanes", poses.dtype)())
    padded = (parents + lanes - 1) // lanes * lanes
    kept = poses.new_empty(batch, iters, rows * columns, padded, _KEPT)
    return out, poses.new_empty(batch, rows, columns, parents), kept


@torch.library.custom_op("torchcaps::em_routing", mutates_args=(), device_types="cpu")
def _forward(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    window: list[int],
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor]:
    # Contiguous copies are kept in names until the call is over: the kernel sees addresses only.
    poses, weight = poses.contiguous(), weight.contiguous()
    given = _contiguous(activations, betas, offsets, poses.new_tensor(constants))
    room = _room(poses, weight, window, len(constants) - 2)
    _call("forward", poses, weight, [*given, *room], window, len(constants) - 2)
    return room


@_forward.register_fake
def _(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    window: list[int],
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor]:
    return _room(poses, weight, window, len(constants) - 2)


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
    window: list[int],
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    poses, weight = poses.contiguous(), weight.contiguous()
    given = _contiguous(activations, betas, offsets, poses.new_tensor(constants), kept, grad_out, grad_active)
    grads = _gradients(poses, activations, weight, betas)
    _call("backward", poses, weight, [*given, *grads], window, len(constants) - 2)
    return grads


@_backward.register_fake
def _(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    kept: Tensor,
    grad_out: Tensor,
    grad_active: Tensor,
    window: list[int],
    constants: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients(poses, activations, weight, betas)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _gradients(
    poses: Tensor, activations: Tensor, weight: Tensor, betas: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, second, third, fourth = (t.new_empty(t.shape) for t in (poses, activations, weight, betas))
    return first, second, third, fourth


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.window, ctx.constants = inputs
    ctx.save_for_backward(*tensors, output[2])


def _differentiate(ctx: Any, grad_out: Tensor, grad_active: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    grads = _backward(*ctx.saved_tensors, grad_out, grad_active, ctx.window, ctx.constants)
    return *grads, None, None, None


_forward.register_autograd(_differentiate, setup_context=_setup_context)
_backward.register_autograd(_library.refuse_second_derivative)
