"""Dynamic routing as public code implements it: two baselines with the same results and no kernel.

Both store the same intermediate tensors as that code and differentiate through all iterations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops import squash


def broadcast_routing(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """Route with one matrix product per sample, child and parent.

    Broadcasting copies the weight for every sample, and every intermediate tensor has all five axes.

    Args:
        poses: Poses of the children.
        weight: Transformation matrices.
        bias: Bias of the parents.
        iters: Number of iterations.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D]; bias: [J, D]; returns [B, J, D].

    Returns:
        The poses of the parents.
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
    """Route with all votes from one einsum, and weighted sums of stored products.

    Args:
        poses: Poses of the children.
        weight: Transformation matrices.
        bias: Bias of the parents.
        iters: Number of iterations.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D]; bias: [J, D]; returns [B, J, D].

    Returns:
        The poses of the parents.
    """
    votes = torch.einsum("bip,ijpd->bijd", poses, weight)  # [B, I, J, D]
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    parents = votes.new_zeros(votes.shape[0], *votes.shape[2:])  # [B, J, D]
    for iteration in range(iters):
        coupling = logits.softmax(dim=2)  # [B, I, J]
        parents = squash((coupling.unsqueeze(-1) * votes).sum(dim=1) + bias)  # [B, J, D]
        if iteration < iters - 1:
            logits = logits + (votes * parents.unsqueeze(1)).sum(dim=-1)  # [B, I, J]
    return parents
