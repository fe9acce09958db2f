"""Dynamic routing by agreement as the paper states it: the definition that every kernel is tested against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_bias, check_votes, dot_votes, sum_votes

GradMode = Literal["all", "last"]


def check_routing_options(iters: int, grad: str, squash: str = "standard") -> None:
    """Raise ConfigError unless there is at least one iteration and the gradient mode and squash form exist.

    Args:
        iters: Number of iterations.
        grad: Iterations that gradients flow through.
        squash: Form of the squash function.
    """
    check_iters(iters)
    check_squash(squash)
    if grad not in get_args(GradMode):
        raise ConfigError(f"grad: expected one of {', '.join(get_args(GradMode))}, got '{grad}'")


def dynamic_steps(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route votes by agreement.

    Procedure 1 of Sabour et al. 2017, repeated `iters` times: coupling = softmax of the logits over the parents;
    presquash_j = sum_i coupling_ij votes_ij + bias_j; poses = squash(presquash); logits += votes . poses. The bias is
    in the authors' released code.

    Args:
        votes: Predictions of every child for every parent.
        logits: Logits of the first iteration. Default: zero.
        bias: Vector added to each parent before it is squashed.
        iters: Number of routing iterations.
        leaky: Add one more parent with logit 0, whose share is dropped.
        grad: `all` differentiates through all iterations, `last` through the last one with constant agreements.
        squash: Form of the squash; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; logits: [B, I, J]; bias: [J, D]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step per iteration.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> out = dynamic_routing(torch.randn(2, 6, 3, 4), iters=3)
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 4]), True)
    """
    check_votes(votes)
    check_routing_options(iters, grad, squash)
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    elif logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")
    check_bias(bias, votes)
    for iteration in range(iters):
        coupling = softmax(logits, background=0.0 if leaky else None)  # [B, I, J]
        presquash = sum_votes(coupling, votes)  # [B, J, D]
        if bias is not None:
            presquash = presquash + bias  # [B, J, D]
        poses = apply_squash(presquash, form=squash)  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        if iteration < iters - 1:
            agreement = dot_votes(votes, poses)  # [B, I, J]
            # With grad="last" the earlier iterations only look for the coupling: what they add is constant.
            logits = logits + (agreement if grad == "all" else agreement.detach())  # [B, I, J]


dynamic_routing = routing_of(dynamic_steps)
