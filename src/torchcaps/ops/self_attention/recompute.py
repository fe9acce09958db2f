"""Self-attention routing in two passes over pieces of the children, without stored votes or a copy of the weight."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._pieces import split_children, without_autocast
from torchcaps.ops._sum_votes import sum_pieces
from torchcaps.ops.conv import Window
from torchcaps.ops.self_attention.reference import check_prior
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules


def unsupported(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding; None for a dense layer.
        **params: Other options of the routing.

    Returns:
        The reason, or None.
    """
    return None if weight.dim() == 4 else "it has a weight of its own for each child"


@computes_wide
def dense(
    children: Capsules, weight: Tensor, *, prior: Tensor | None = None, squash: SquashForm = "exponential"
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D]; see `self_attention_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        prior: Logits that do not depend on the votes [I, J] or [1, J]; None for none.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    poses, parents = children.poses, weight.shape[1]
    check_poses_and_weight(poses, weight)
    check_squash(squash)
    check_prior(prior, poses.shape[1], parents)
    given = weight.new_zeros(1, parents) if prior is None else prior
    presquash: Tensor = _SelfAttention.apply(poses, weight, given.expand(poses.shape[1], parents))  # [B, J, D]
    out = apply_squash(presquash, form=squash)  # [B, J, D]
    return Capsules(out, torch.linalg.vector_norm(out, dim=-1))


class _SelfAttention(torch.autograd.Function):
    """presquash_j = sum_i (coupling_ij + prior_ij) votes_ij, with total = sum_i votes_i and key = total / sqrt(D).

    The gradient of the total needs all children before that of a vote is known: the backward pass computes the votes
    twice. It consists of differentiable operations: there are second derivatives.
    """

    @staticmethod
    def forward(poses: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
        with without_autocast(poses.device):
            key = _key(poses, weight)  # [B, J, D]
            out = torch.zeros_like(key)
            for piece in _pieces(poses, weight, prior, key):
                out += _weighted_sum(piece.coupling + piece.prior, piece.votes)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        poses, weight, prior = ctx.saved_tensors
        key = _key(poses, weight)  # [B, J, D]
        of_key = torch.zeros_like(key)
        for piece in _pieces(poses, weight, prior, key):
            of_key = of_key + _weighted_sum(piece.logit_gradients(grad)[1], piece.votes)
        of_total = of_key / math.sqrt(key.shape[-1])  # [B, J, D]
        of_poses, of_weight, of_prior = torch.empty_like(poses), torch.empty_like(weight), torch.empty_like(prior)
        for piece in _pieces(poses, weight, prior, key):
            of_share, of_logits = piece.logit_gradients(grad)
            of_prior[piece.children] = of_share.sum(dim=1)
            share = (piece.coupling + piece.prior).unsqueeze(-1)
            of_votes = of_total + share * grad + of_logits.unsqueeze(-1) * key  # [i, B, J, D]
            of_votes = of_votes.flatten(2)  # [i, B, J*D]
            of_poses[:, piece.children] = (of_votes @ piece.matrices.mT).transpose(0, 1)
            found = poses[:, piece.children].permute(1, 2, 0) @ of_votes  # [i, P, J*D]
            of_weight[piece.children] = found.unflatten(2, weight.shape[1::2]).transpose(1, 2)
        return of_poses, of_weight, of_prior


class _Piece(NamedTuple):
    """Some children of a layer, with their matrices [i, P, J*D], prior [i, 1, J], votes [i, B, J, D] and coupling."""

    children: slice
    matrices: Tensor
    prior: Tensor
    votes: Tensor
    coupling: Tensor  # [i, B, J]

    def logit_gradients(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of coupling and logits [i, B, J] by that of the weighted sum [B, J, D]."""
        of_share = (self.votes * grad).sum(dim=-1)
        of_logits = self.coupling * (of_share - (self.coupling * of_share).sum(dim=-1, keepdim=True))
        return of_share, of_logits


def _key(poses: Tensor, weight: Tensor) -> Tensor:
    """Return the sum of the votes [B, J, D], divided by sqrt(D)."""
    return sum_pieces(poses, weight) / math.sqrt(weight.shape[-1])


def _pieces(poses: Tensor, weight: Tensor, prior: Tensor, key: Tensor) -> Iterator[_Piece]:
    """Compute votes and coupling of one piece of the children after the other."""
    for some in split_children(len(weight), key.numel(), key):
        matrices = weight[some].transpose(1, 2).flatten(2)  # [i, P, J*D]
        votes = (poses[:, some].transpose(0, 1) @ matrices).unflatten(2, key.shape[1:])  # [i, B, J, D]
        coupling = (votes * key).sum(dim=-1).softmax(dim=-1)  # [i, B, J]
        yield _Piece(some, matrices, prior[some].unsqueeze(1), votes, coupling)


def _weighted_sum(share: Tensor, votes: Tensor) -> Tensor:
    """Return the sum over the children of share [i, B, J] times votes [i, B, J, D]."""
    return torch.einsum("ibj,ibjd->bjd", share, votes)
