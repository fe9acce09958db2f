"""Routing as k-means clustering with soft assignment: the definition that every fast twin is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, check_iters, last_step, parent_softmax
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_votes
from torchcaps.types import Routed


def check_kmeans_options(iters: int, inverse_temp: float) -> None:
    """Raise unless there is at least one iteration and the inverse temperature is a finite number above 0."""
    check_iters(iters)
    if not (inverse_temp > 0 and math.isfinite(inverse_temp)):
        raise ConfigError(f"inverse_temp: expected a finite number above 0, got {inverse_temp}")


def kmeans_steps(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    iters: int = 3,
    inverse_temp: float = 1.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Move the centres and assign the votes anew, and give each iteration as it ends; see `kmeans_routing`."""
    check_votes(votes)
    check_kmeans_options(iters, inverse_temp)
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    elif logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")
    for iteration in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        total = torch.einsum("bij,bijd->bjd", coupling, votes)  # [B, J, D]
        poses = squash(total, form="half")  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        if iteration < iters - 1:
            centres = F.normalize(total, dim=-1)  # [B, J, D]
            logits = inverse_temp * torch.einsum("bijd,bjd->bij", votes, centres)  # [B, I, J]


def kmeans_routing(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    iters: int = 3,
    inverse_temp: float = 1.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Cluster the votes: each parent is the centre of those that lie in its direction.

    Repeat `iters` times: coupling = softmax of logits over parents, uniform at first; total_j = sum_i coupling_ij
    votes_ij; logits = inverse_temp votes . total/|total|, which replace the old ones. At the end poses =
    squash(total) with |x|^2 / (0.5 + |x|^2) as length (Su Jianlin 2018, from k-means to capsules). votes [B, I, J, D]
    give poses [B, J, D], activations [B, J] and coupling [B, I, J].

    `logits` [B, I, J] are where the routing starts, zero unless given: parents that all see the same votes need a start
    that tells them apart. The larger `inverse_temp`, the harder a child decides; k-means itself is the limit. `softmax`
    says which parents a child chooses from: all J, unless a convolution gives its own (`Window.softmax`).

    >>> out = kmeans_routing(torch.randn(2, 6, 3, 4), iters=3)
    >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
    (torch.Size([2, 3, 4]), True)
    """
    last = last_step(kmeans_steps(votes, logits, iters=iters, inverse_temp=inverse_temp, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
