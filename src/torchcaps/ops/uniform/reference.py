"""Uniform routing: every child gives every parent the same share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.ops._iterations import ParentSoftmax, Step, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_bias, check_votes, sum_votes


def fixed_step(votes: Tensor, logits: Tensor, bias: Tensor | None, squash: SquashForm, softmax: ParentSoftmax) -> Step:
    """Compute one iteration with logits [B, I, J] that do not depend on the votes.

    Args:
        votes: Votes [B, I, J, D].
        logits: Logits [B, I, J].
        bias: Bias of the parents [J, D]; None for none.
        squash: Form of the squash function.
        softmax: Softmax over the parents.

    Returns:
        The step.
    """
    check_votes(votes)
    check_bias(bias, votes)
    check_squash(squash)
    coupling = softmax(logits)  # [B, I, J]
    presquash = sum_votes(coupling, votes)  # [B, J, D]
    if bias is not None:
        presquash = presquash + bias  # [B, J, D]
    poses = apply_squash(presquash, form=squash)  # [B, J, D]
    return Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))


def uniform_steps(
    votes: Tensor,
    *,
    bias: Tensor | None = None,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Couple every child equally to all parents: the control that shows the effect of routing.

    coupling_ij = 1 / J; poses_j = squash(sum_i coupling_ij votes_ij + bias_j). It is the first iteration of dynamic
    routing (Sabour et al. 2017, procedure 1): a linear layer with a squash.

    Args:
        votes: Predictions of every child for every parent.
        bias: Vector added to each parent before it is squashed.
        squash: Form of the squash; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; bias: [J, D]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If `squash` is unknown.

    Example:
        >>> out = uniform_routing(torch.randn(2, 6, 4, 8))
        >>> out.poses.shape, out.coupling.unique()
        (torch.Size([2, 4, 8]), tensor([0.2500]))
    """
    check_votes(votes)
    yield fixed_step(votes, votes.new_zeros(votes.shape[:3]), bias, squash, softmax)


uniform_routing = routing_of(uniform_steps)
