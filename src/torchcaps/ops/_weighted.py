"""Sums of votes whose weights are given, without the votes: neither stored forwards nor for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# How many poses of children, times their size, are worked on at a time.
CACHED = 2**17
REASON = "it computes floating-point types, got {}; use backend='reference'"


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where matrix products serve, on any device; otherwise the reason and the remedy."""
    return None if dtype.is_floating_point else REASON.format(dtype)


def describe() -> str:
    """What there is to say about it."""
    return "matrix products, on any device"


def weighted_votes(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    """The sum of all votes for each parent, each weighed by what its child gives that parent.

    sum_i share_ij poses_i weight_ij: share [J, B, I], poses [B, I, P] and weight [I, J, P, D], or [J, P, D] shared by
    all children, give [B, J, D]. The largest thing on the way has the size of poses.

    >>> weighted_votes(torch.ones(3, 2, 5), torch.ones(2, 5, 8), torch.ones(5, 3, 8, 16)).shape
    torch.Size([2, 3, 16])
    """
    dtype = torch.promote_types(torch.promote_types(share.dtype, poses.dtype), weight.dtype)
    share, poses, weight = share.to(dtype), poses.to(dtype), weight.to(dtype)
    if weight.dim() == 3:
        return torch.einsum("bjp,jpd->bjd", torch.einsum("jbi,bip->bjp", share, poses), weight)  # [B, J, D]
    return _WeightedVotes.apply(share, poses, weight)  # [B, J, D]


class _WeightedVotes(torch.autograd.Function):
    """For a few children at a time and one parent, a product of weighed poses [B, P*i] with matrices [P*i, D].

    Poses are turned to [B, P, i], so that what runs along the children lies together in memory, and as many children
    are taken as stay in a cache. The backward pass weighs the poses again instead of keeping them. It is made of
    differentiable steps: there are second derivatives.
    """

    @staticmethod
    def forward(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
        out = poses.new_zeros(len(share), poses.shape[0], weight.shape[-1])  # [J, B, D]
        with torch.autocast(poses.device.type, enabled=False):
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
    """Children in pieces whose poses, over the whole batch, have so many numbers that a cache holds them."""
    batch, children, size = poses.shape
    count = max(1, CACHED // max(1, batch * size))
    return (slice(start, start + count) for start in range(0, children, count))


def _turn(poses: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Poses with the children last, [B, P, i], and a matrix for each parent, [J, P*i, D]."""
    return poses.transpose(1, 2).contiguous(), weight.permute(1, 2, 0, 3).flatten(1, 2)
