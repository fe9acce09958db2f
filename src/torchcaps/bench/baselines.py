"""Dynamic routing as public code writes it: two patterns to be measured against, same results, no fast twin.

Both keep what the pattern keeps in memory, and let the gradient flow through all iterations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops import squash


def broadcast_routing(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """One matrix product per sample, child and parent: broadcasting copies the weight [I, J, P, D] for every sample.

    poses [B, I, P] give parents [B, J, D]; every intermediate keeps all five axes.
    """
    votes = poses[:, :, None, None, :] @ weight[None]  # [B, I, J, 1, D]
    logits = torch.zeros_like(votes[..., :1])  # [B, I, J, 1, 1]
    parents = torch.zeros_like(votes[:, :1])  # [B, 1, J, 1, D]
    for iteration in range(iters):
        coupling = logits.softmax(dim=2)  # [B, I, J, 1, 1]
        presquash = (coupling * votes).sum(dim=1, keepdim=True) + bias[:, None]  # [B, 1, J, 1, D]
        parents = squash(presquash)  # [B, 1, J, 1, D]
        if iteration < iters - 1:
            logits = logits + (votes * parents).sum(dim=-1, keepdim=True)  # [B, I, J, 1, 1]
    return parents.squeeze(3).squeeze(1)  # [B, J, D]


def einsum_routing(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """All votes [B, I, J, D] from one einsum, then weighted sums of them as products that are stored as well."""
    votes = torch.einsum("bip,ijpd->bijd", poses, weight)  # [B, I, J, D]
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    parents = votes.new_zeros(votes.shape[0], *votes.shape[2:])  # [B, J, D]
    for iteration in range(iters):
        coupling = logits.softmax(dim=2)  # [B, I, J]
        parents = squash((coupling.unsqueeze(-1) * votes).sum(dim=1) + bias)  # [B, J, D]
        if iteration < iters - 1:
            logits = logits + (votes * parents.unsqueeze(1)).sum(dim=-1)  # [B, I, J]
    return parents
