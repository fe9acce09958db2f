"""Uniform routing: every child gives every parent the same share, and nothing is decided."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.ops._steps import ParentSoftmax, Step, last_step, parent_softmax
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_bias, check_votes
from torchcaps.types import Routed


def given_step(votes: Tensor, logits: Tensor, bias: Tensor | None, softmax: ParentSoftmax) -> Step:
    """One iteration with logits [B, I, J] that do not depend on the votes: couple, add up, squash."""
    coupling = softmax(logits)  # [B, I, J]
    presquash = torch.einsum("bij,bijd->bjd", coupling, votes)  # [B, J, D]
    if bias is not None:
        presquash = presquash + bias  # [B, J, D]
    poses = squash(presquash)  # [B, J, D]
    return Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))


def uniform_steps(
    votes: Tensor, *, bias: Tensor | None = None, softmax: ParentSoftmax = parent_softmax
) -> Iterator[Step]:
    """Give the one iteration that there is; see `uniform_routing`."""
    check_votes(votes)
    check_bias(bias, votes)
    yield given_step(votes, votes.new_zeros(votes.shape[:3]), bias, softmax)


def uniform_routing(votes: Tensor, *, bias: Tensor | None = None, softmax: ParentSoftmax = parent_softmax) -> Routed:
    """Share every child out evenly among the parents: the control that says what routing is worth.

    coupling_ij = 1 / J; poses_j = squash(sum_i coupling_ij votes_ij + bias_j). votes [B, I, J, D] give poses [B, J, D],
    activations [B, J] and coupling [B, I, J]. It is the first iteration of dynamic routing (Sabour et al. 2017,
    procedure 1), and thus a linear layer with a squash. `softmax` as in `dynamic_routing`.

    >>> out = uniform_routing(torch.randn(2, 6, 4, 8))
    >>> out.poses.shape, out.coupling.unique()
    (torch.Size([2, 4, 8]), tensor([0.2500]))
    """
    last = last_step(uniform_steps(votes, bias=bias, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
