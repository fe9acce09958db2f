"""Losses: what the lengths of the class capsules and the reconstruction are held to."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.types import Capsules

Scale = Literal["paper", "released"]

LOSSES: Registry[type[nn.Module]] = Registry("loss")


def presence(labels: Tensor, like: Tensor) -> Tensor:
    """Which classes are there, as [B, J] of zeros and ones.

    From class numbers [B], or [B, 2] where two classes are in one image, or from [B, J] as it is.
    """
    if labels.shape == like.shape:
        return labels.to(like.dtype)  # [B, J]
    two = labels.dim() == 2 and labels.shape[1] == 2 and labels.dtype == torch.int64
    if labels.shape[:1] != like.shape[:1] or not (labels.dim() == 1 or two):
        raise ShapeError(
            f"labels: expected {tuple(like.shape[:1])} class numbers or {tuple(like.shape)} presences, "
            f"got {tuple(labels.shape)}"
        )
    there = F.one_hot(labels, like.shape[1]).to(like.dtype)
    return there.amax(dim=1) if two else there  # [B, J]


@LOSSES.register("margin")
class MarginLoss(nn.Module):
    """Each class capsule long when its class is there, short when not.

    L_k = T_k max(0, present - a_k)^2 + absent_weight (1 - T_k) max(0, a_k - absent)^2, summed over classes, mean over
    the batch (Sabour et al. 2017, eq. 4). Labels are class numbers [B]; where several classes are in one image
    they are the numbers of two, [B, 2], or presences [B, J].

    >>> import torch
    >>> caps = Capsules(torch.zeros(1, 2, 4), torch.tensor([[0.9, 0.1]]))
    >>> MarginLoss()(caps, torch.tensor([0]))
    tensor(0.)
    """

    def __init__(self, *, present: float = 0.9, absent: float = 0.1, absent_weight: float = 0.5) -> None:
        super().__init__()
        self.present = present
        self.absent = absent
        self.absent_weight = absent_weight

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        activations = capsules.activations  # [B, J]
        there = presence(labels, activations)  # [B, J]
        missing = F.relu(self.present - activations).square()  # [B, J]
        excess = F.relu(activations - self.absent).square()  # [B, J]
        margin = there * missing + self.absent_weight * (1 - there) * excess  # [B, J]
        return margin.sum(dim=-1).mean()


@LOSSES.register("cross_entropy")
class CrossEntropyLoss(nn.Module):
    """Cross-entropy for networks whose class capsules have one dimension, the score: -log softmax(scores)_label.

    Where several classes are there, it is the mean over them; an image of no class adds nothing.

    >>> import torch
    >>> caps = Capsules(torch.zeros(1, 2, 1), torch.full((1, 2), 0.5))
    >>> CrossEntropyLoss()(caps, torch.tensor([0]))
    tensor(0.6931)
    """

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        scores = capsules.poses.squeeze(-1)  # [B, J]
        if scores.dim() != 2:
            raise ShapeError(f"poses: expected [B, J, 1], one score per class, got {tuple(capsules.poses.shape)}")
        there = presence(labels, scores)  # [B, J]
        return F.cross_entropy(scores, there / there.sum(dim=-1, keepdim=True).clamp(min=1))


@LOSSES.register("likelihood")
class LikelihoodLoss(nn.Module):
    """Minus the logarithm of the true class's share of all activations: cross-entropy for capsules.

    -log(a_label / sum_k a_k), mean over the batch, where the class capsules have poses of any size; their activations
    may be a softmax or not. Where several classes are there, it is the mean over them.

    >>> import torch
    >>> caps = Capsules(torch.zeros(1, 2, 16), torch.full((1, 2), 0.5))
    >>> LikelihoodLoss()(caps, torch.tensor([0]))
    tensor(0.6931)
    """

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        activations = capsules.activations  # [B, J]
        there = presence(labels, activations)  # [B, J]
        # Down to the smallest number the gradient of the logarithm is finite, and a softmax before it takes it back.
        tiny = torch.finfo(activations.dtype).tiny
        total = activations.sum(dim=-1, keepdim=True).clamp(min=tiny)  # [B, 1]
        logs = activations.clamp(min=tiny).log() - total.log()  # [B, J]
        return -(there * logs).sum(dim=-1).div(there.sum(dim=-1).clamp(min=1)).mean()


class ReconstructionLoss(nn.Module):
    """Squared pixel errors, summed over an image, mean over the batch, times a weight.

    scale="paper": 0.0005 * SSE, beside a margin loss that is summed over the classes (Sabour et al. 2017, section 4.1).
    scale="released": the released code halves the margin and averages it over the classes, but not the reconstruction;
    in the units of `MarginLoss` its reconstruction weighs 2 * num_classes times more.

    >>> import torch
    >>> ReconstructionLoss(weight=1.0)(torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2))
    tensor(4.)
    """

    def __init__(self, weight: float = 0.0005, *, scale: Scale = "paper", num_classes: int = 10) -> None:
        super().__init__()
        if scale not in get_args(Scale):
            raise ConfigError(f"scale: expected one of {', '.join(get_args(Scale))}, got '{scale}'")
        self.weight = weight if scale == "paper" else weight * 2 * num_classes

    def forward(self, reconstruction: Tensor, images: Tensor) -> Tensor:
        if reconstruction.shape != images.shape:
            raise ShapeError(f"reconstruction: expected {tuple(images.shape)}, got {tuple(reconstruction.shape)}")
        return self.weight * (reconstruction - images).square().flatten(1).sum(dim=-1).mean()
