"""The C++ kernel of routing with one Gaussian per parent, EM or variational Bayes, over a grid or in a dense layer.

Votes are recomputed and never stored. The derivations are in em/README.md and variational/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._flops import Cost
from torchcaps.ops._grid import GridSizes, check_grid, grid_sizes
from torchcaps.types import Capsules

# Vectors saved per parent and iteration beside mean and variance: mass, level and activity.
_SAVED = 3
# Constants that do not differ from iteration to iteration.
_SINGLE = 3


def stack_betas(beta_u: Tensor, beta_a: Tensor, *background: Tensor) -> Tensor:
    """Return beta_u, beta_a and perhaps the background as one tensor [2 or 3, J]; their shapes must be equal."""
    if beta_u.shape != beta_a.shape:
        raise ShapeError(f"beta_a: expected {tuple(beta_u.shape)} like beta_u, got {tuple(beta_a.shape)}")
    return torch.stack([beta_u, beta_a, *background])


def gaussian_routing(
    children: Capsules,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    window: list[int],
    *,
    iters: int,
    model: Literal["em", "variational"],
    constants: Sequence[float],
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] to parents [B, H', W', J, D].

    Types of 16 bits are computed in float32. First derivatives only: the gradient of a gradient is an error.

    Args:
        children: The lower capsules.
        weight: [K*K*I or I, J, p, p] for matrices, [..., J, P, D] for vectors.
        betas: beta_u, beta_a and perhaps the background, [2 or 3, J].
        offsets: Added to the first two entries of the votes of each place of the kernel, [K*K, 2].
        window: Numbers from `window_numbers` or `dense_grid`.
        iters: Number of routing iterations.
        model: The M-step.
        constants: For EM the floors of variance and mass, the momentum, and an inverse temperature and a sharpness per
            iteration; for variational Bayes the prior's scatter, strength and concentration.

    Returns:
        The parents.
    """
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    poses, activations, _ = _gaussian_routing(
        children.poses.to(dtype),
        children.activations.to(dtype),
        weight.to(dtype),
        betas.to(dtype),
        None if offsets is None else offsets.to(dtype),
        window,
        iters,
        model == "variational",
        list(constants),
    )
    return Capsules(poses.to(result), activations.to(result))


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    window: list[int],
    iters: int,
    variational: bool,
    constants: list[float],
) -> None:
    check_grid(poses, activations, weight, offsets, window)
    rows = 3 if betas.shape[:1] == (3,) and not variational else 2
    _native.check_shape("betas", betas, [rows, weight.shape[1]])
    if iters < 1:
        raise ConfigError(f"iters: expected a count of at least 1, got {iters}")
    expected = _SINGLE + (0 if variational else 2 * iters)
    if len(constants) != expected:
        raise ConfigError(f"constants: expected {expected} numbers for {iters} iterations, got {constants}")


def _saved_shape(sizes: GridSizes, iters: int, lanes: int) -> list[int]:
    return [sizes.groups(lanes), iters, sizes.positions * sizes.parents, 2 * sizes.out_dim + _SAVED, lanes]


def _shapes(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> list[list[int]]:
    """Return the shapes of the parents' poses and activations, and of the state that is saved for the gradients."""
    _, _, window, iters, *_ = rest
    sizes = grid_sizes(poses, weight, window)
    grid = [sizes.batch, sizes.rows, sizes.columns, sizes.parents]
    return [[*grid, sizes.out_dim], grid, _saved_shape(sizes, iters, _native.lanes(poses.dtype))]


def gaussian_cost(poses: Tensor, weight: Tensor, window: list[int], iters: int) -> Cost:
    """Return the cost of routing with Gaussians: one pass per iteration, and one more for the first mean."""
    return Cost(grid_sizes(poses, weight, window).vote_flops, iters + 1, iters)


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, betas: Tensor, *rest: Any) -> Cost:
    _, window, iters, *_ = rest
    return gaussian_cost(poses, weight, window, iters)


def _call(name: str, args: _native.Arguments, saved: Tensor, others: Sequence[Tensor | None]) -> None:
    poses, activations, weight, betas, offsets, window, iters, variational, constants = args
    sizes = [*grid_sizes(poses, weight, window), iters, int(variational), int(betas.shape[0] == 3), saved.numel()]
    inputs = [poses, weight, activations, betas, offsets, poses.new_tensor(constants)]
    _native.call(f"gaussian_{name}", [*inputs, *others], sizes)


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _call("forward", args, outputs[2], outputs)


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _call("backward", args, saved[0], [saved[0], *grads[:2], *outputs])


_gaussian_routing = _native.native_op(
    "gaussian_routing",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor betas, Tensor? offsets, int[] window, int iters, "
    "bool variational, float[] constants) -> (Tensor, Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    saved=[2],
    differentiable=4,
    all_gradients=True,
)
