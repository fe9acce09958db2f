"""The lean twin of uniform routing: one matrix product, without votes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops import _weighted
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_poses_and_weight

why_not, describe = _weighted.why_not, _weighted.describe


def route(poses: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `uniform_routing`.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).shape
    torch.Size([2, 10, 16])
    """
    check_poses_and_weight(poses, weight)
    pattern = "bip,ijpd->bjd" if weight.dim() == 4 else "bip,jpd->bjd"
    presquash = torch.einsum(pattern, poses, weight) / weight.shape[-3]  # [B, J, D]
    return squash(presquash if bias is None else presquash + bias)
