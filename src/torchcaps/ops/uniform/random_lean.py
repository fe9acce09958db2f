"""The lean twin of random routing: what is drawn goes into the matrices, and the votes are never stored."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops import _weighted
from torchcaps.ops.squash import squash
from torchcaps.ops.uniform.random import check_random_options, random_logits
from torchcaps.ops.votes import check_poses_and_weight

why_not, describe = _weighted.why_not, _weighted.describe


def route(poses: Tensor, weight: Tensor, bias: Tensor | None = None, *, seed: int = 0, spread: float = 1.0) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `random_routing`.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).shape
    torch.Size([2, 10, 16])
    """
    check_poses_and_weight(poses, weight)
    check_random_options(seed, spread)
    logits = spread * random_logits(poses.shape[1], weight.shape[-3], seed=seed).to(weight)  # [I, J]
    coupling = logits.softmax(dim=-1)  # [I, J]
    if weight.dim() == 4:
        presquash = torch.einsum("bip,ijpd->bjd", poses, weight * coupling[..., None, None])  # [B, J, D]
    else:
        presquash = torch.einsum("bjp,jpd->bjd", torch.einsum("bip,ij->bjp", poses, coupling), weight)  # [B, J, D]
    return squash(presquash if bias is None else presquash + bias)
