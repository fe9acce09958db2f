"""Weighted sums of votes without the votes, which are stored neither forwards nor for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops._pieces import without_autocast

# Numbers of the poses of one piece of children.
CACHED = 2**17


def weighted_votes(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    """Compute sum_i share_ij poses_i weight_ij, the weighted sum of the votes for each parent.

    The largest intermediate tensor has the size of the poses. 16 bits are computed in float32.

    Args:
        share: Weight of each vote.
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent.

    Shape:
        share: [J, B, I]; poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; returns [B, J, D].

    Returns:
        The sums.

    Example:
        >>> weighted_votes(torch.ones(3, 2, 5), torch.ones(2, 5, 8), torch.ones(5, 3, 8, 16)).shape
        torch.Size([2, 3, 16])
    """
    result = torch.promote_types(torch.promote_types(share.dtype, poses.dtype), weight.dtype)
    dtype = torch.promote_types(result, torch.float32)
    share, poses, weight = share.to(dtype), poses.to(dtype), weight.to(dtype)
    if weight.dim() == 3:
        return torch.einsum("bjp,jpd->bjd", torch.einsum("jbi,bip->bjp", share, poses), weight).to(result)  # [B, J, D]
    return _WeightedVotes.apply(share, poses, weight).to(result)  # [B, J, D]


class _WeightedVotes(torch.autograd.Function):
    """Products of weighted poses [B, P*i] with matrices [P*i, D], for a piece of the children and one parent at a time.

    Poses are transposed to [B, P, i], so that the children are contiguous in memory, and a piece fits into a cache. The
    backward pass recomputes the weighted poses. It consists of differentiable operations: there are second derivatives.
    """

    @staticmethod
    def forward(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
        out = poses.new_zeros(len(share), poses.shape[0], weight.shape[-1])  # [J, B, D]
        with without_autocast(poses.device):
            for some in _few(poses):
                turned, matrices = _turn(poses[:, some], weight[some])
                for j, given in enumerate(share[:, :, some].unsqueeze(2)):
                    out[j].addmm_((turned * given).flatten(1), matrices[j])
        return out.transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        share, poses, weight = ctx.saved_tensors
        of_share, of_poses, of_weight = torch.empty_like(share), torch.empty_like(poses), torch.empty_like(weight)
        grad = grad.transpose(0, 1).contiguous()  # [J, B, D]
        for some in _few(poses):
            turned, matrices = _turn(poses[:, some], weight[some])
            of_turned = torch.zeros_like(turned)  # [B, P, i]
            for j, given in enumerate(share[:, :, some].unsqueeze(2)):
                pull = (grad[j] @ matrices[j].mT).view_as(turned)  # [B, P, i]
                of_turned.addcmul_(pull, given)
                of_share[j, :, some] = (pull * turned).sum(dim=1)
                of_matrix = (turned * given).flatten(1).mT @ grad[j]  # [P*i, D]
                of_weight[some, j] = of_matrix.unflatten(0, turned.shape[1:]).transpose(0, 1)
            of_poses[:, some] = of_turned.transpose(1, 2)
        return of_share, of_poses, of_weight


def _few(poses: Tensor) -> Iterator[slice]:
    """Split the children into pieces whose poses, over the whole batch, fit into a cache."""
    batch, children, size = poses.shape
    count = max(1, CACHED // max(1, batch * size))
    return (slice(start, start + count) for start in range(0, children, count))


def _turn(poses: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return poses with the children last, [B, P, i], and a matrix for each parent, [J, P*i, D]."""
    return poses.transpose(1, 2).contiguous(), weight.permute(1, 2, 0, 3).flatten(1, 2)
