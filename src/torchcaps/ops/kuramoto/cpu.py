"""The C++ kernel of Kuramoto routing: votes recomputed and never stored (see README.md)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._flops import Cost
from torchcaps.ops._grid import check_grid, dense_grid, grid_sizes, window_numbers
from torchcaps.ops.conv import Window
from torchcaps.ops.kuramoto.reference import check_kuramoto_options, direction, ratio, turn
from torchcaps.ops.squash import SquashForm, check_squash, squashed_length
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules

# From this step on, the length of a turned phase is the small difference of large numbers.
_MAX_STEP = 16.0


def unsupported(
    children: Capsules, weight: Tensor, *, window: Window | None = None, step: float = 1.0, **params: Any
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding; None for a dense layer.
        step: Step size of the oscillators.
        **params: Other options of the routing.

    Returns:
        The reason, or None.
    """
    for name in params:
        if name not in _OPTIONS:
            return f"the kernel has no option '{name}'"
    if step > _MAX_STEP:
        return f"the kernel has steps of at most {_MAX_STEP:g}"
    return None if children.poses.shape[1] else "the kernel has at least one child"


def dense(children: Capsules, weight: Tensor, **options: Any) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `kuramoto_routing` for the options."""
    check_poses_and_weight(children.poses, weight)
    grid, weight, numbers = dense_grid(children, weight)
    parents = _route(grid, weight, None, numbers, **options)
    return Capsules(parents.poses[:, 0, 0], parents.activations[:, 0, 0])


def conv(children: Capsules, weight: Tensor, window: Window, **options: Any) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `kuramoto_routing` for the options.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        **options: Options of `kuramoto_routing`.

    Returns:
        The parents.
    """
    return _route(children, weight, window.offsets, window_numbers(window), **options)


def _route(
    children: Capsules,
    weight: Tensor,
    offsets: Tensor | None,
    window: list[int],
    *,
    bias: Tensor | None = None,
    omega: Tensor | None = None,
    iters: int = 3,
    gain: float = 4.0,
    step: float = 1.0,
    squash: SquashForm = "standard",
) -> Capsules:
    check_kuramoto_options(iters, gain, step)
    check_squash(squash)
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    poses, activations, weight = (tensor.to(dtype) for tensor in (*children, weight))
    # Without offsets, activations have no role and no gradient, as in the reference.
    inputs = [poses, activations if offsets is not None else activations.detach(), weight]
    offsets = None if offsets is None else offsets.to(dtype)
    size = grid_sizes(poses, weight, window).out_dim
    bias, omega = _learned(bias, omega, weight.shape[1], size, dtype)
    phases: list[Tensor] = []
    field = poses.new_zeros(())
    for _ in range(iters):
        sums = _kuramoto_pass(*inputs, _keys(phases), offsets, window, len(phases), [gain, step])
        field, parts, total = sums.split([size, len(phases), 1], dim=-1)
        for number, phase in enumerate(phases):
            field = field + parts[..., number : number + 1] * phase  # [B, H', W', J, D]
        if bias is not None:
            field, total = field + bias, total + torch.linalg.vector_norm(bias, dim=-1, keepdim=True)
        if not phases:
            phases.append(direction(field))  # [B, H', W', J, D]
            continue
        drift = 0 if omega is None else torch.einsum("jde,...je->...jd", omega - omega.mT, phases[-1])
        phases.append(turn(phases[-1], drift + ratio(field, total), step))  # [B, H', W', J, D]
    active = squashed_length(field, form=squash)  # [B, H', W', J]
    return Capsules((active.unsqueeze(-1) * phases[-1]).to(result), active.to(result))


_OPTIONS = frozenset(inspect.signature(_route).parameters)


def _learned(
    bias: Tensor | None, omega: Tensor | None, parents: int, size: int, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """Return bias and omega in a type, checked."""
    if bias is not None and bias.shape != (parents, size):
        raise ShapeError(f"bias: expected {(parents, size)}, got {tuple(bias.shape)}")
    if omega is not None and omega.shape != (parents, size, size):
        raise ShapeError(f"omega: expected {(parents, size, size)}, got {tuple(omega.shape)}")
    return None if bias is None else bias.to(dtype), None if omega is None else omega.to(dtype)


def _keys(phases: Sequence[Tensor]) -> Tensor | None:
    """Return the phases of the parents and their products with each other: [B, H', W', J, r D + r r]."""
    if not phases:
        return None
    stacked = torch.stack(list(phases), dim=-2)  # [B, H', W', J, r, D]
    return torch.cat([stacked.flatten(-2), (stacked @ stacked.mT).flatten(-2)], dim=-1)


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    keys: Tensor | None,
    offsets: Tensor | None,
    window: list[int],
    turns: int,
    constants: list[float],
) -> None:
    check_grid(poses, activations, weight, offsets, window)
    if turns < 0 or (keys is None) != (turns == 0):
        raise ConfigError(f"turns: expected a count of at least 1 with keys and 0 without, got {turns}")
    if len(constants) != 2:
        raise ConfigError(f"constants: expected gain and step, got {constants}")
    sizes = grid_sizes(poses, weight, window)
    columns = turns * (sizes.out_dim + turns)
    _native.check_shape("keys", keys, [sizes.batch, sizes.rows, sizes.columns, sizes.parents, columns])


def _shapes(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> list[list[int]]:
    window, turns, _ = rest[-3:]
    sizes = grid_sizes(poses, weight, window)
    return [[sizes.batch, sizes.rows, sizes.columns, sizes.parents, sizes.out_dim + turns + 1]]


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> Cost:
    window, turns, _ = rest[-3:]
    # The gradient of the keys needs a pass of its own.
    return Cost(grid_sizes(poses, weight, window).vote_flops, 1, 2 if turns else 1)


def _call(name: str, args: _native.Arguments, others: Sequence[Tensor | None]) -> None:
    *tensors, window, turns, constants = args
    poses, _, weight, *_ = tensors
    sizes = [*grid_sizes(poses, weight, window), turns]
    _native.call(f"kuramoto_{name}", [*tensors, poses.new_tensor(constants), *others], sizes)


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _call("forward", args, outputs)


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _call("backward", args, [*grads, *outputs])


_kuramoto_pass = _native.native_op(
    "kuramoto_pass",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor? keys, Tensor? offsets, int[] window, int turns, "
    "float[] constants) -> Tensor",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    differentiable=4,
    all_gradients=True,
)
