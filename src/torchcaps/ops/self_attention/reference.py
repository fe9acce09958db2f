"""Self-attention routing as the paper states it: the definition that every kernel is tested against."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_votes, dot_votes, sum_votes


def check_prior(prior: Tensor | None, children: int, parents: int) -> None:
    """Raise ShapeError unless the prior is [I, J], or [1, J] for all children.

    Args:
        prior: The prior; None for none.
        children: Number of children.
        parents: Number of parents.
    """
    if prior is not None and prior.shape not in ((children, parents), (1, parents)):
        raise ShapeError(f"prior: expected {(children, parents)} or {(1, parents)}, got {tuple(prior.shape)}")


def self_attention_steps(
    votes: Tensor,
    *,
    prior: Tensor | None = None,
    squash: SquashForm = "exponential",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by self-attention among the votes for a parent, without iterations.

    logits_ij = sum_k votes_ij . votes_kj / sqrt(D); coupling = softmax of the logits over the parents; poses =
    squash(sum_i (coupling_ij + prior_ij) votes_ij), with length 1 - exp(-|s|) (Mazzia et al. 2021).

    Args:
        votes: Predictions of every child for every parent.
        prior: Weight of each pair of child and parent that is added to the coupling, learned by a network.
        squash: Form of the squash; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; prior: [I, J] or [1, J]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If `squash` is unknown.

    Example:
        >>> out = self_attention_routing(torch.randn(2, 6, 3, 4), prior=torch.zeros(6, 3))
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 4]), True)
    """
    check_votes(votes)
    check_squash(squash)
    _, children, parents, size = votes.shape
    check_prior(prior, children, parents)
    # The sum over k of votes_ij . votes_kj is the vote times the sum of all votes: no I x I matrix is needed.
    agreement = dot_votes(votes, votes.sum(dim=1))  # [B, I, J]
    logits = agreement / math.sqrt(size)  # [B, I, J]
    coupling = softmax(logits)  # [B, I, J]
    weight = coupling if prior is None else coupling + prior  # [B, I, J]
    poses = apply_squash(sum_votes(weight, votes), form=squash)  # [B, J, D]
    yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))


self_attention_routing = routing_of(self_attention_steps)
