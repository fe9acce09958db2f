"""The C++ kernel of k-means routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._attention_pass.cpu import attend
from torchcaps.ops._attention_pass.grid import attend_grid, computes_wide, squash_parents
from torchcaps.ops.conv import Window
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


def dense(
    children: Capsules, weight: Tensor, *, iters: int = 3, inverse_temp: float = 1.0, squash: SquashForm = "half"
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `kmeans_routing`."""
    check_kmeans_options(iters, inverse_temp, squash)
    total = attend(children.poses, weight)  # [B, J, D]
    for _ in range(iters - 1):
        total = attend(children.poses, weight, inverse_temp * F.normalize(total, dim=-1))  # [B, J, D]
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
    """Route a grid of children [B, H, W, I, P] through a window; see `kmeans_routing`."""
    check_kmeans_options(iters, inverse_temp, squash)
    total = attend_grid(children, weight, window)  # [B, H', W', J, D]
    for _ in range(iters - 1):
        total = attend_grid(children, weight, window, inverse_temp * F.normalize(total, dim=-1))  # [B, H', W', J, D]
    return squash_parents(total, None, squash)
