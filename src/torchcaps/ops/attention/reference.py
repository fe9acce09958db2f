"""Inverted dot-product attention as the paper states it: the definition that every kernel is tested against."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash, squashed_length
from torchcaps.ops.votes import check_votes, dot_votes, sum_votes


def check_attention(parents: Tensor | None, gain: Tensor | None, offset: Tensor | None, shape: torch.Size) -> None:
    """Raise ShapeError unless the parents have the given shape [B, J, D], and gain and offset are [D].

    Args:
        parents: Poses that the parents start with; None for the mean of the votes.
        gain: Gain of the layer normalisation [D]; None for none.
        offset: Offset of the layer normalisation [D]; None for none.
        shape: Shape of the parents [B, J, D].
    """
    if parents is not None and parents.shape != shape:
        raise ShapeError(f"parents: expected {tuple(shape)}, got {tuple(parents.shape)}")
    for name, value in (("gain", gain), ("offset", offset)):
        if value is not None and value.shape != shape[2:]:
            raise ShapeError(f"{name}: expected {tuple(shape[2:])}, got {tuple(value.shape)}")


def attention_steps(
    votes: Tensor,
    parents: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by attention of the children to the parents, which compete for them.

    Repeated `iters` times: logits = votes . poses / sqrt(D); coupling = softmax of the logits over the parents; poses =
    LayerNorm(sum_i coupling_ij votes_ij) (Tsai et al. 2020, procedure 1; the root is in their released code).

    Normalised poses have similar lengths, and the paper reads classes from them by a linear layer. The activations are
    the length that squashing the sum of the votes would give: near 1 where many children agree, 0 without votes.

    Args:
        votes: Predictions of every child for every parent.
        parents: Poses that the first iteration attends to. Default: zero, which makes it uniform. With `iters=1` and
            the present parents this is one update of the paper's concurrent routing.
        gain: Gain of the layer normalisation.
        offset: Offset of the layer normalisation.
        iters: Number of routing iterations.
        squash: Form of the squash whose length is the activation; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; parents: [B, J, D]; gain and offset: [D]; poses [B, J, D], activations [B, J], coupling
        [B, I, J].

    Yields:
        One step per iteration.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> votes = torch.randn(2, 6, 3, 4)
        >>> first = attention_routing(votes, iters=1)
        >>> second = attention_routing(votes, first.poses, iters=1)
        >>> torch.allclose(second.poses, attention_routing(votes, iters=2).poses)
        True
    """
    check_votes(votes)
    check_iters(iters)
    check_squash(squash)
    batch, _, count, size = votes.shape
    check_attention(parents, gain, offset, torch.Size((batch, count, size)))
    poses = votes.new_zeros(batch, count, size) if parents is None else parents  # [B, J, D]
    for _ in range(iters):
        agreement = dot_votes(votes, poses)  # [B, I, J]
        logits = agreement / math.sqrt(size)  # [B, I, J]
        coupling = softmax(logits)  # [B, I, J]
        total = sum_votes(coupling, votes)  # [B, J, D]
        poses = F.layer_norm(total, (size,), gain, offset)  # [B, J, D]
        yield Step(logits, coupling, poses, squashed_length(total, form=squash))


attention_routing = routing_of(attention_steps)
