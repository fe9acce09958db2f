"""Routing as k-means clustering with soft assignment: the definition that every kernel is tested against."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_votes, dot_votes, sum_votes


def check_kmeans_options(iters: int, inverse_temp: float, squash: str = "half") -> None:
    """Raise ConfigError unless the options are in range.

    Args:
        iters: Number of iterations.
        inverse_temp: Inverse temperature.
        squash: Form of the squash function.
    """
    check_iters(iters)
    check_squash(squash)
    if not (inverse_temp > 0 and math.isfinite(inverse_temp)):
        raise ConfigError(f"inverse_temp: expected a finite number above 0, got {inverse_temp}")


def kmeans_steps(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    iters: int = 3,
    inverse_temp: float = 1.0,
    squash: SquashForm = "half",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Cluster the votes by direction: each parent is the centre of the votes assigned to it.

    Repeated `iters` times: coupling = softmax of the logits over the parents; total_j = sum_i coupling_ij votes_ij;
    logits = inverse_temp votes . total/|total|, which replace the old logits. poses = squash(total) (Su Jianlin 2018,
    from k-means to capsules).

    Args:
        votes: Predictions of every child for every parent.
        logits: Logits of the first iteration. Default: zero. Parents that get identical votes need logits that differ.
        iters: Number of routing iterations.
        inverse_temp: Factor on the logits. The limit of large values is k-means with hard assignment.
        squash: Form of the squash; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; logits: [B, I, J]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step per iteration.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is out of range.

    Example:
        >>> out = kmeans_routing(torch.randn(2, 6, 3, 4), iters=3)
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 4]), True)
    """
    check_votes(votes)
    check_kmeans_options(iters, inverse_temp, squash)
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    elif logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")
    for iteration in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        total = sum_votes(coupling, votes)  # [B, J, D]
        poses = apply_squash(total, form=squash)  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        if iteration < iters - 1:
            centres = F.normalize(total, dim=-1)  # [B, J, D]
            logits = inverse_temp * dot_votes(votes, centres)  # [B, I, J]


kmeans_routing = routing_of(kmeans_steps)
