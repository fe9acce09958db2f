"""The C++ kernel of variational Bayes routing: votes recomputed and never stored (see README.md)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchcaps.ops._gaussian import gaussian_routing, stack_betas
from torchcaps.ops._grid import dense_grid, window_numbers
from torchcaps.ops._iterations import check_iters
from torchcaps.ops.conv import Window
from torchcaps.ops.variational.reference import DEFAULT, Prior
from torchcaps.ops.votes import check_activations, check_poses_and_weight
from torchcaps.types import Capsules


def unsupported(
    children: Capsules, weight: Tensor, *, window: Window | None = None, prior: Prior = DEFAULT, **params: Any
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding; None for a dense layer.
        prior: Prior of the parents.
        **params: Other options of the routing.

    Returns:
        The reason.
    """
    if prior.covariance != "diagonal":
        return "the kernel has a diagonal covariance"
    return None if children.poses.shape[1] else "the kernel has at least one child"


def dense(
    children: Capsules, weight: Tensor, *, beta_u: Tensor, beta_a: Tensor, iters: int = 3, prior: Prior = DEFAULT
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `variational_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        beta_u: Cost of describing a child [J].
        beta_a: Cost of leaving a parent inactive [J].
        iters: Number of iterations.
        prior: Prior of the parents.

    Returns:
        The parents.
    """
    check_poses_and_weight(children.poses, weight)
    check_activations(children.activations, children.poses)
    grid, weight, numbers = dense_grid(children, weight)
    parents = _route(grid, weight, None, numbers, stack_betas(beta_u, beta_a), iters, prior)
    return Capsules(parents.poses[:, 0, 0], parents.activations[:, 0, 0])


def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    prior: Prior = DEFAULT,
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through weight [K*K*I or I, J, p, p], or [..., J, P, D] for vectors.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        beta_u: Cost of describing a child [J].
        beta_a: Cost of leaving a parent inactive [J].
        iters: Number of iterations.
        prior: Prior of the parents.

    Returns:
        The parents.
    """
    betas = stack_betas(beta_u, beta_a)
    return _route(children, weight, window.offsets, window_numbers(window), betas, iters, prior)


def _route(
    grid: Capsules,
    weight: Tensor,
    offsets: Tensor | None,
    numbers: list[int],
    betas: Tensor,
    iters: int,
    prior: Prior,
) -> Capsules:
    check_iters(iters)
    prior.check()
    constants = [prior.scatter, prior.strength, prior.concentration]
    return gaussian_routing(
        grid, weight, betas, offsets, numbers, iters=iters, model="variational", constants=constants
    )
