"""The C++ kernel of k-means routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._attention_pass.cpu import attend
from torchcaps.ops._attention_pass.grid import attend_grid, squash_parents
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    iters: int = 3,
    inverse_temp: float = 1.0,
    squash: SquashForm = "half",
    softmax: ParentSoftmax | None = None,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `kmeans_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        iters: Number of iterations.
        inverse_temp: Inverse temperature.
        squash: Form of the squash function.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    check_kmeans_options(iters, inverse_temp, squash)
    total = attend(children.poses, weight, softmax=softmax)  # [B, J, D]
    for _ in range(iters - 1):
        key = inverse_temp * F.normalize(total, dim=-1)  # [B, J, D]
        total = attend(children.poses, weight, key, softmax=softmax)  # [B, J, D]
    parents = apply_squash(total, form=squash)  # [B, J, D]
    return Capsules(parents, torch.linalg.vector_norm(parents, dim=-1))


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    iters: int = 3,
    inverse_temp: float = 1.0,
    squash: SquashForm = "half",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `kmeans_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        iters: Number of iterations.
        inverse_temp: Inverse temperature.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    check_kmeans_options(iters, inverse_temp, squash)
    total = attend_grid(children, weight, window)  # [B, H', W', J, D]
    for _ in range(iters - 1):
        total = attend_grid(children, weight, window, inverse_temp * F.normalize(total, dim=-1))  # [B, H', W', J, D]
    return squash_parents(total, None, squash)
