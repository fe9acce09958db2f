"""Inverted dot-product attention as the paper states it: the definition that every fast twin is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, check_iters, last_step, parent_softmax
from torchcaps.ops.votes import check_votes
from torchcaps.types import Routed


def check_attention(poses: Tensor | None, gain: Tensor | None, offset: Tensor | None, parents: torch.Size) -> None:
    """Raise unless poses have the shape of the parents [B, J, D], and gain and offset are [D]."""
    if poses is not None and poses.shape != parents:
        raise ShapeError(f"poses: expected {tuple(parents)}, got {tuple(poses.shape)}")
    for name, value in (("gain", gain), ("offset", offset)):
        if value is not None and value.shape != parents[2:]:
            raise ShapeError(f"{name}: expected {tuple(parents[2:])}, got {tuple(value.shape)}")


def presence(total: Tensor) -> Tensor:
    """How much of a parent is there, from 0 to 1: the length |s|^2 / (1 + |s|^2) that squashing its sum would give."""
    square = total.square().sum(dim=-1)  # [B, J]
    return square / (1 + square)


def attention_steps(
    votes: Tensor,
    poses: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Run procedure 1 of the paper `iters` times and give each iteration as it ends; see `attention_routing`."""
    check_votes(votes)
    check_iters(iters)
    batch, _, parents, size = votes.shape
    check_attention(poses, gain, offset, torch.Size((batch, parents, size)))
    if poses is None:
        poses = votes.new_zeros(batch, parents, size)  # [B, J, D]
    for _ in range(iters):
        agreement = torch.einsum("bijd,bjd->bij", votes, poses)  # [B, I, J]
        logits = agreement / math.sqrt(size)  # [B, I, J]
        coupling = softmax(logits)  # [B, I, J]
        total = torch.einsum("bij,bijd->bjd", coupling, votes)  # [B, J, D]
        poses = F.layer_norm(total, (size,), gain, offset)  # [B, J, D]
        yield Step(logits, coupling, poses, presence(total))


def attention_routing(
    votes: Tensor,
    poses: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Let each child attend to the parents, which compete for it.

    Repeat `iters` times: logits = votes . poses / sqrt(D); coupling = softmax of logits over parents; poses =
    LayerNorm(sum_i coupling_ij votes_ij) (Tsai et al. 2020, procedure 1; the root is in their released code). votes
    [B, I, J, D] give poses [B, J, D], activations [B, J] and coupling [B, I, J].

    `poses` [B, J, D] are the parents that the first iteration attends to: zero unless given, and with zero it is
    uniform. With `iters=1` and the parents found so far it is one update of the paper's concurrent routing, where all
    layers of a network move together. `gain` and `offset` [D] are what the layer normalisation learned.

    Normalised poses have all about the same length, and the paper reads classes from them by a linear layer. The
    activations given here are the length that squashing the sum of the votes would give, |s|^2 / (1 + |s|^2): near 1
    where many children agree, and 0 without votes. `softmax` says which parents a child chooses from: all J, unless a
    convolution gives its own (`Window.softmax`).

    >>> votes = torch.randn(2, 6, 3, 4)
    >>> first = attention_routing(votes, iters=1)
    >>> second = attention_routing(votes, first.poses, iters=1)
    >>> torch.allclose(second.poses, attention_routing(votes, iters=2).poses)
    True
    """
    last = last_step(attention_steps(votes, poses, gain=gain, offset=offset, iters=iters, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
