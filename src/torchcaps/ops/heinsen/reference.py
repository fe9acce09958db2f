"""Routing of vectors in sequences as the paper states it: the definition that every kernel is tested against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash, squashed_length
from torchcaps.ops.votes import check_activations, check_bias, check_votes


class Predictor(NamedTuple):
    """What a parent expects of the children: predict [D, P], predict_gain and predict_bias [J, P], score_bias [J]."""

    predict: Tensor
    gain: Tensor
    bias: Tensor
    score_bias: Tensor

    def check(self, parents: int, in_dim: int, out_dim: int) -> None:
        """Raise ShapeError unless all four fit the sizes J, P and D.

        Args:
            parents: Number of parents.
            in_dim: Pose size of the children.
            out_dim: Pose size of the parents.
        """
        shapes = {
            "predict": (out_dim, in_dim),
            "predict_gain": (parents, in_dim),
            "predict_bias": (parents, in_dim),
            "score_bias": (parents,),
        }
        for (name, shape), value in zip(shapes.items(), self, strict=True):
            if value.shape != shape:
                raise ShapeError(f"{name}: expected {shape}, got {tuple(value.shape)}")

    def scores(self, children: Tensor, parents: Tensor) -> Tensor:
        """Compute ln sigmoid of how well parents [B, J, D] predict children [B, I, P]: [B, I, J]."""
        expected = normalise(parents) @ self.predict * self.gain + self.bias  # [B, J, P]
        return F.logsigmoid(children @ expected.mT + self.score_bias)  # [B, I, J]


def normalise(parents: Tensor) -> Tensor:
    """Give each parent [B, J, D] mean 0 and variance 1; a single number is kept, which would become 0."""
    return F.layer_norm(parents, parents.shape[-1:]) if parents.shape[-1] > 1 else parents


def net_values(poses: Tensor, beta_weight: Tensor, beta_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the net benefit to use and the net cost to ignore each child, both [B, I, J].

    Raises ShapeError unless beta_weight is [2, J, P] and beta_bias [2, J].

    Args:
        poses: Poses of the children [B, I, P].
        beta_weight: Matrices from a child to its net benefit to use and its net cost to ignore.
        beta_bias: Offsets of both.

    Returns:
        Net benefit and net cost.
    """
    if beta_weight.dim() != 3 or beta_weight.shape[0] != 2 or beta_weight.shape[-1] != poses.shape[-1]:
        raise ShapeError(f"beta_weight: expected [2, J, {poses.shape[-1]}], got {tuple(beta_weight.shape)}")
    if beta_bias.shape != beta_weight.shape[:2]:
        raise ShapeError(f"beta_bias: expected {tuple(beta_weight.shape[:2])}, got {tuple(beta_bias.shape)}")
    use, ignore = torch.einsum("bip,kjp->kbij", poses, beta_weight) + beta_bias[:, None, None]  # [B, I, J] each
    return use, ignore


def root_count(activations: Tensor, like: Tensor) -> Tensor:
    """Return 1 / sqrt(n) with the type of `like`, n [B, 1, 1] the number of children that are not absent."""
    count = (activations > 0).sum(dim=1).clamp(min=1)  # [B]
    return count.to(torch.promote_types(like.dtype, torch.float32)).rsqrt().to(like.dtype)[:, None, None]


def heinsen_steps(
    votes: Tensor,
    activations: Tensor,
    poses: Tensor,
    *,
    predict: Tensor,
    predict_gain: Tensor,
    predict_bias: Tensor,
    score_bias: Tensor,
    beta_weight: Tensor,
    beta_bias: Tensor,
    bias: Tensor | None = None,
    iters: int = 2,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by how well each parent predicts the children, and by what it gains from using or ignoring them.

    Algorithm 1 of Heinsen 2022 with the linear functions of its section on efficient routing, repeated `iters` times.
    E-step: coupling_i = softmax over the parents of ln sigmoid(poses_i . predicted_j + score_bias_j), predicted_j =
    (LayerNorm(parent_j) predict) * predict_gain_j + predict_bias_j; uniform in the first iteration. D-step: used_ij =
    coupling_ij a_i, ignored_ij = a_i - used_ij. M-step: credit_ij = use_ij used_ij - ignore_ij ignored_ij with use_i
    and ignore_i linear in poses_i; parent_j = sum_i credit_ij (votes_ij / sqrt(n) + bias_j), n the number of children.

    The poses are LayerNorm(parent_j). The paper's vectors have no activation: here it is the length that squashing
    parent_j would give. The extra `credit` of a trace is what each child contributes to each parent, of either sign.

    Args:
        votes: Predictions of every child for every parent.
        activations: Activations of the children, the paper's f(a). A child of activation 0 has no effect.
        poses: Poses of the children.
        predict: Matrix from a parent to what it predicts.
        predict_gain: Gain of each parent's prediction.
        predict_bias: Offset of each parent's prediction.
        score_bias: Offset of each parent's score.
        beta_weight: Matrices from a child to its net benefit to use and its net cost to ignore.
        beta_bias: Offsets of both.
        bias: Vector added to all votes for a parent.
        iters: Number of routing iterations.
        squash: Form of the squash whose length is the activation; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; activations: [B, I]; poses: [B, I, P]; predict: [D, P]; predict_gain and predict_bias:
        [J, P]; score_bias: [J]; beta_weight: [2, J, P]; beta_bias: [2, J]; bias: [J, D]; poses [B, J, D], activations
        [B, J], coupling [B, I, J].

    Yields:
        One step per iteration.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> votes, activations, poses = torch.randn(2, 6, 3, 8), torch.rand(2, 6), torch.randn(2, 6, 4)
        >>> given = {"predict": torch.randn(8, 4), "predict_gain": torch.randn(3, 4), "predict_bias": torch.zeros(3, 4)}
        >>> betas = {"beta_weight": torch.randn(2, 3, 4), "beta_bias": torch.zeros(2, 3)}
        >>> heinsen_routing(votes, activations, poses, **given, score_bias=torch.zeros(3), **betas).poses.shape
        torch.Size([2, 3, 8])
    """
    check_votes(votes)
    check_activations(activations, votes)
    check_bias(bias, votes)
    check_iters(iters)
    check_squash(squash)
    if poses.dim() != 3 or poses.shape[:2] != votes.shape[:2]:
        raise ShapeError(f"poses: expected [{votes.shape[0]}, {votes.shape[1]}, P], got {tuple(poses.shape)}")
    predictor = Predictor(predict, predict_gain, predict_bias, score_bias)
    predictor.check(votes.shape[2], poses.shape[2], votes.shape[3])
    use, ignore = net_values(poses, beta_weight, beta_bias)  # [B, I, J]
    data = activations.unsqueeze(-1)  # [B, I, 1]
    scaled = votes * root_count(activations, votes).unsqueeze(-1)  # [B, I, J, D]
    scaled = scaled if bias is None else scaled + bias  # [B, I, J, D]
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    parents = votes.new_zeros(0)
    for iteration in range(iters):
        if iteration > 0:
            logits = predictor.scores(poses, parents)  # [B, I, J]
        coupling = softmax(logits)  # [B, I, J]
        used = coupling * data  # [B, I, J]
        ignored = data - used  # [B, I, J]
        credit = use * used - ignore * ignored  # [B, I, J]
        parents = torch.einsum("bij,bijd->bjd", credit, scaled)  # [B, J, D]
        activation = squashed_length(parents, form=squash)  # [B, J]
        yield Step(logits, coupling, normalise(parents), activation, {"credit": credit})


heinsen_routing = routing_of(heinsen_steps)
