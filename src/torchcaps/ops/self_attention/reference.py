"""Self-attention routing as the paper states it: the definition that every fast twin is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, last_step, parent_softmax
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_votes
from torchcaps.types import Routed


def check_prior(prior: Tensor | None, children: int, parents: int) -> None:
    """Raise unless the prior is [I, J], or [1, J] for all children."""
    if prior is not None and prior.shape not in ((children, parents), (1, parents)):
        raise ShapeError(f"prior: expected {(children, parents)} or {(1, parents)}, got {tuple(prior.shape)}")


def self_attention_steps(
    votes: Tensor, *, prior: Tensor | None = None, softmax: ParentSoftmax = parent_softmax
) -> Iterator[Step]:
    """The one iteration of self-attention routing; see `self_attention_routing`."""
    check_votes(votes)
    _, children, parents, size = votes.shape
    check_prior(prior, children, parents)
    # The sum over k of votes_ij . votes_kj is the vote times the sum of all votes: no I x I matrix is needed.
    agreement = torch.einsum("bijd,bjd->bij", votes, votes.sum(dim=1))  # [B, I, J]
    logits = agreement / math.sqrt(size)  # [B, I, J]
    coupling = softmax(logits)  # [B, I, J]
    heard = coupling if prior is None else coupling + prior  # [B, I, J]
    poses = squash(torch.einsum("bij,bijd->bjd", heard, votes), form="exponential")  # [B, J, D]
    yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))


def self_attention_routing(
    votes: Tensor, *, prior: Tensor | None = None, softmax: ParentSoftmax = parent_softmax
) -> Routed:
    """Let the votes for a parent attend to each other, once and for all.

    logits_ij = sum_k votes_ij . votes_kj / sqrt(D); coupling = softmax of logits over parents; poses = squash(sum_i
    (coupling_ij + prior_ij) votes_ij), where squash gives the length 1 - exp(-|s|) (Mazzia et al. 2021).
    votes [B, I, J, D] give poses [B, J, D], activations [B, J] and coupling [B, I, J]. There are no iterations.

    `prior` [I, J], or [1, J] for all children alike, is what a parent hears of a child beside its coupling; a network
    learns it. `softmax` says which parents a child chooses from: all J, unless a convolution gives its own
    (`Window.softmax`).

    >>> out = self_attention_routing(torch.randn(2, 6, 3, 4), prior=torch.zeros(6, 3))
    >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
    (torch.Size([2, 3, 4]), True)
    """
    last = last_step(self_attention_steps(votes, prior=prior, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
