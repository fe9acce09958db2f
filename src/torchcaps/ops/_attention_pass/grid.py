"""One pass of softmax attention over the votes of a grid in C++, differentiable, without stored votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._flops import Cost
from torchcaps.ops._grid import check_grid, grid_sizes, window_numbers
from torchcaps.ops.conv import Window
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


class Pairs(NamedTuple):
    """Tensors with one entry per place of the kernel, type of child and parent.

    Args:
        prior: Added to the coupling.
        base: Added to the logits.
        route: Vector of each pair whose product with the child's pose is added to the logits.

    Shape:
        prior and base: [K*K*I, J]; route: [K*K*I, J, P].
    """

    prior: Tensor | None = None
    base: Tensor | None = None
    route: Tensor | None = None


def attend_grid(
    children: Capsules,
    weight: Tensor,
    window: Window,
    key: Tensor | None = None,
    pairs: Pairs | None = None,
    *,
    leaky: bool = False,
    through: bool = True,
) -> Tensor:
    """Sum the votes for each parent of a grid, total_j = sum_i (coupling_ij + prior_ij) votes_ij.

    coupling is the softmax of votes . key + base + poses . route over the parents that compete for a child; it is
    uniform without any of the three. First derivatives only: the gradient of a gradient is an error.

    Args:
        children: The grid of lower capsules. The activations scale the offsets of the window.
        weight: One matrix per place, type and parent, or per type and parent.
        window: The kernel and its positions.
        key: One vector per position and parent, which the votes are compared with.
        pairs: Prior, base and route.
        leaky: Add one more parent with logit 0, whose share is dropped.
        through: Whether gradients pass through the coupling.

    Shape:
        children: [B, H, W, I, P]; weight: [K*K*I or I, J, p, p] or [..., J, P, D]; key: [B, H', W', J, D]; returns
        [B, H', W', J, D].

    Returns:
        The sums.

    Example:
        >>> grid = Capsules(torch.ones(2, 5, 5, 3, 4), torch.ones(2, 5, 5, 3))
        >>> attend_grid(grid, torch.ones(27, 6, 4, 8), Window((5, 5), (3, 3), 2, pose="vector")).shape
        torch.Size([2, 2, 2, 6, 8])
    """
    return _attend(children, weight, window, key, pairs, leaky, False, through)[0]


def attend_grid_weighted(children: Capsules, weight: Tensor, window: Window, pairs: Pairs) -> Capsules:
    """Sum the votes of a grid and their shares, share_ij = coupling_ij a_i, with the logits base + poses . route.

    Args:
        children: The grid of lower capsules.
        weight: One matrix per place, type and parent, or per type and parent.
        window: The kernel and its positions.
        pairs: Base and route.

    Shape:
        As in `attend_grid`; returns totals [B, H', W', J, D] and masses [B, H', W', J].

    Returns:
        The sums of the votes, and of the shares.
    """
    return Capsules(*_attend(children, weight, window, None, pairs, False, True, True))


def squash_parents(total: Tensor, bias: Tensor | None, form: SquashForm) -> Capsules:
    """Return the parents of sums [B, H', W', J, D], with a bias [J, D] added before they are squashed."""
    if bias is not None and bias.shape != total.shape[-2:]:
        raise ShapeError(f"bias: expected {tuple(total.shape[-2:])}, got {tuple(bias.shape)}")
    poses = apply_squash(total if bias is None else total + bias, form=form)  # [B, H', W', J, D]
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def _attend(
    children: Capsules,
    weight: Tensor,
    window: Window,
    key: Tensor | None,
    pairs: Pairs | None,
    leaky: bool,
    weighted: bool,
    through: bool,
) -> tuple[Tensor, Tensor]:
    offsets = None if window.offsets is None else window.offsets.to(weight)
    # Activations without a role have no gradient, as in the reference.
    has_role = weighted or offsets is not None
    activations = children.activations if has_role else children.activations.detach()
    tensors = [children.poses, activations, weight, key, *(pairs or Pairs()), offsets]
    return _grid_attention(*tensors, window_numbers(window), leaky, weighted, through)


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    key: Tensor | None,
    prior: Tensor | None,
    base: Tensor | None,
    route: Tensor | None,
    offsets: Tensor | None,
    window: list[int],
    leaky: bool,
    weighted: bool,
    through: bool,
) -> None:
    check_grid(poses, activations, weight, offsets, window)
    sizes = grid_sizes(poses, weight, window)
    pairs = [window[0] * window[1] * sizes.types, sizes.parents]
    _native.check_shape("key", key, [sizes.batch, sizes.rows, sizes.columns, sizes.parents, sizes.out_dim])
    _native.check_shape("prior", prior, pairs)
    _native.check_shape("base", base, pairs)
    _native.check_shape("route", route, [*pairs, poses.shape[4]])
    if weighted and (prior is not None or key is not None):
        raise ConfigError("weighted: expected False with a key or a prior, got True")


def _shapes(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> list[list[int]]:
    window, _, weighted, _ = rest[-4:]
    sizes = grid_sizes(poses, weight, window)
    grid = [sizes.batch, sizes.rows, sizes.columns, sizes.parents]
    return [[*grid, sizes.out_dim], grid if weighted else [0]]


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> Cost:
    key, prior, base, route, _, window, _, weighted, through = rest
    # One pass for the gradient of the key, and one for the coupling unless it and its gradient need no votes.
    logits = key is not None or (through and any(tensor is not None for tensor in (base, route)))
    read = weighted or prior is not None or logits
    backward = int(key is not None and through) + int(read)
    return Cost(grid_sizes(poses, weight, window).vote_flops, 1, backward)


def _call(name: str, args: _native.Arguments, others: Sequence[Tensor | None]) -> None:
    *tensors, window, leaky, weighted, through = args
    sizes = [*grid_sizes(tensors[0], tensors[2], window), int(leaky), int(weighted), int(through)]
    _native.call(f"grid_attention_{name}", [*tensors, *others], sizes)


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _call("forward", args, outputs)


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _call("backward", args, [*grads, *outputs])


_grid_attention = _native.native_op(
    "grid_attention",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor? key, Tensor? prior, Tensor? base, Tensor? route, "
    "Tensor? offsets, int[] window, bool leaky, bool weighted, bool through) -> (Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    differentiable=7,
    all_gradients=True,
)
