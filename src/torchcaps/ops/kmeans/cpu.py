"""The C++ twin of k-means routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops import _library
from torchcaps.ops.agreement.cpu import agree
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.ops.squash import squash
from torchcaps.types import Capsules

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def route(poses: Tensor, weight: Tensor, *, iters: int = 3, inverse_temp: float = 1.0) -> Capsules:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `kmeans_routing`.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).poses.shape
    torch.Size([2, 10, 16])
    """
    check_kmeans_options(iters, inverse_temp)
    total = agree(poses, weight)  # [B, J, D]
    for _ in range(iters - 1):
        total = agree(poses, weight, inverse_temp * F.normalize(total, dim=-1))  # [B, J, D]
    parents = squash(total, form="half")  # [B, J, D]
    return Capsules(parents, torch.linalg.vector_norm(parents, dim=-1))
