"""Losses of class capsules and of reconstructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import transforms_active
from torchcaps.types import Capsules

Scale = Literal["paper", "released"]

LOSSES: Registry[type[nn.Module]] = Registry("loss")


def check_class_capsules(capsules: Capsules) -> None:
    """Raise ShapeError unless a loss or decoder receives the capsules themselves, not one of their tensors."""
    if not isinstance(capsules, Capsules):
        shape = f" {tuple(capsules.shape)}" if isinstance(capsules, Tensor) else ""
        raise ShapeError(f"capsules: expected Capsules, the output of a model, got {type(capsules).__name__}{shape}")


def check_labels(labels: Tensor, classes: int) -> None:
    """Raise ShapeError on a class number out of range.

    Values are read on a CPU only, and not inside of `torch.func` or `torch.compile`.
    """
    readable = labels.device.type == "cpu" and not (transforms_active() or torch.compiler.is_compiling())
    if readable and labels.numel() and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        raise ShapeError(
            f"labels: expected class numbers from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}"
        )


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Encode class numbers [...] as booleans [..., J]; unlike `F.one_hot` it does not read values, so vmap works."""
    return labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)


def class_targets(labels: Tensor, like: Tensor) -> Tensor:
    """Return 1 for the classes of each sample and 0 for the others, [B, J] as `like`.

    Labels are class numbers [B], two class numbers per sample [B, 2], or targets [B, J], which are returned unchanged.
    """
    if labels.shape == like.shape:
        return labels.to(like.dtype)  # [B, J]
    two = labels.dim() == 2 and labels.shape[1] == 2 and labels.dtype == torch.int64
    if labels.shape[:1] != like.shape[:1] or not (labels.dim() == 1 or two):
        raise ShapeError(
            f"labels: expected {tuple(like.shape[:1])} class numbers or {tuple(like.shape)} targets, "
            f"got {tuple(labels.shape)}"
        )
    check_labels(labels, like.shape[1])
    targets = one_hot(labels, like.shape[1])
    return (targets.any(dim=1) if two else targets).to(like.dtype)  # [B, J]


class WeightedLoss(nn.Module):
    """Base of losses of classes: the mean over the batch, weighted by the class of each sample.

    Args:
        weight: Weight of each class, or None for equal weights. With several classes per sample it is their mean.

    Raises:
        ConfigError: If a weight is not a number of at least 0.
    """

    weight: Tensor | None

    def __init__(self, weight: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        if weight is not None:
            if isinstance(weight, str):
                raise ConfigError(f"weight: expected one number per class, got '{weight}' (a recipe takes 'balanced')")
            weight = torch.as_tensor(weight, dtype=torch.float32)
            if weight.dim() != 1 or not weight.isfinite().all() or weight.min() < 0:
                raise ConfigError(f"weight: expected a number of at least 0 for each class, got {weight.tolist()}")
        # Not persistent: it follows from the arguments.
        self.register_buffer("weight", weight, persistent=False)

    def mean(self, losses: Tensor, targets: Tensor) -> Tensor:
        """Return the weighted mean of the losses of samples [B] with targets [B, J].

        Args:
            losses: Loss of each sample.
            targets: 1 for the classes of each sample, 0 for the others.

        Returns:
            A scalar.

        Raises:
            ShapeError: If there is another number of classes than weights.
        """
        if self.weight is None:
            return losses.mean()
        if self.weight.shape[0] != targets.shape[1]:
            raise ShapeError(f"weight: expected {targets.shape[1]} numbers, one per class, got {len(self.weight)}")
        targets = targets.to(losses.dtype)
        weights = targets @ self.weight.to(losses.dtype) / targets.sum(dim=-1).clamp(min=1)  # [B]
        return (weights * losses).mean()


@LOSSES.register("margin")
class MarginLoss(WeightedLoss):
    """Margin loss: the capsule of a class is long if the class is present and short otherwise.

    L_k = T_k max(0, present - a_k)^2 + absent_weight (1 - T_k) max(0, a_k - absent)^2, summed over the classes, mean
    over the batch (Sabour et al. 2017, eq. 4).

    Args:
        present: Lowest activation without loss of a class that is present.
        absent: Highest activation without loss of a class that is absent.
        absent_weight: Weight of absent classes.
        weight: Weight of the samples of each class; see `WeightedLoss`.

    Shape:
        capsules: activations [B, J]; labels: class numbers [B] or [B, 2], or targets [B, J]; returns a scalar.

    Example:
        >>> caps = Capsules(torch.zeros(1, 2, 4), torch.tensor([[0.9, 0.1]]))
        >>> MarginLoss()(caps, torch.tensor([0]))
        tensor(0.)
    """

    def __init__(
        self,
        *,
        present: float = 0.9,
        absent: float = 0.1,
        absent_weight: float = 0.5,
        weight: Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__(weight)
        self.present = present
        self.absent = absent
        self.absent_weight = absent_weight

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            capsules: The class capsules.
            labels: The classes of each sample.

        Returns:
            A scalar.

        Raises:
            ShapeError: If the labels do not fit the capsules.
        """
        check_class_capsules(capsules)
        activations = capsules.activations  # [B, J]
        targets = class_targets(labels, activations)  # [B, J]
        too_short = F.relu(self.present - activations).square()  # [B, J]
        too_long = F.relu(activations - self.absent).square()  # [B, J]
        margin = targets * too_short + self.absent_weight * (1 - targets) * too_long  # [B, J]
        return self.mean(margin.sum(dim=-1), targets)


@LOSSES.register("cross_entropy")
class CrossEntropyLoss(WeightedLoss):
    """Cross-entropy of class capsules with one dimension, the score: -log softmax(scores)_label.

    With several classes per sample it is the mean over them. A sample without a class adds nothing.

    Args:
        weight: Weight of the samples of each class; see `WeightedLoss`.

    Shape:
        capsules: poses [B, J, 1]; labels: class numbers [B] or [B, 2], or targets [B, J]; returns a scalar.

    Example:
        >>> caps = Capsules(torch.zeros(1, 2, 1), torch.full((1, 2), 0.5))
        >>> CrossEntropyLoss()(caps, torch.tensor([0]))
        tensor(0.6931)
    """

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            capsules: The class capsules.
            labels: The classes of each sample.

        Returns:
            A scalar.

        Raises:
            ShapeError: If the poses have more than one dimension or the labels do not fit.
        """
        check_class_capsules(capsules)
        scores = capsules.poses.squeeze(-1)  # [B, J]
        if scores.dim() != 2:
            raise ShapeError(
                f"poses: expected [B, J, 1], one score per class, got {tuple(capsules.poses.shape)} "
                "(use MarginLoss or LikelihoodLoss, or nn.Scores with torch's own cross-entropy)"
            )
        targets = class_targets(labels, scores)  # [B, J]
        shares = targets / targets.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, J]
        return self.mean(F.cross_entropy(scores, shares, reduction="none"), targets)


@LOSSES.register("likelihood")
class LikelihoodLoss(WeightedLoss):
    """Negative log of the true class's share of all activations: cross-entropy for capsules with poses of any size.

    -log(a_label / sum_k a_k), mean over the batch. With several classes per sample it is the mean over them.

    Args:
        weight: Weight of the samples of each class; see `WeightedLoss`.

    Shape:
        capsules: activations [B, J]; labels: class numbers [B] or [B, 2], or targets [B, J]; returns a scalar.

    Example:
        >>> caps = Capsules(torch.zeros(1, 2, 16), torch.full((1, 2), 0.5))
        >>> LikelihoodLoss()(caps, torch.tensor([0]))
        tensor(0.6931)
    """

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            capsules: The class capsules.
            labels: The classes of each sample.

        Returns:
            A scalar.

        Raises:
            ShapeError: If the labels do not fit the capsules.
        """
        check_class_capsules(capsules)
        activations = capsules.activations  # [B, J]
        targets = class_targets(labels, activations)  # [B, J]
        # Down to the smallest number the gradient of the logarithm is finite, and a softmax before it cancels it.
        tiny = torch.finfo(activations.dtype).tiny
        total = activations.sum(dim=-1, keepdim=True).clamp(min=tiny)  # [B, 1]
        logs = activations.clamp(min=tiny).log() - total.log()  # [B, J]
        return self.mean(-(targets * logs).sum(dim=-1).div(targets.sum(dim=-1).clamp(min=1)), targets)


class ReconstructionLoss(nn.Module):
    """Squared pixel errors, summed over an image, mean over the batch, times a weight.

    Args:
        weight: Weight of the squared error.
        scale: `paper` is 0.0005 * SSE beside a margin loss that is summed over the classes (Sabour et al. 2017, section
            4.1). `released` is the ratio of the released code, whose margin loss is the mean over the classes and half
            as large: 2 * num_classes times as much here.
        num_classes: Number of classes, for `released`.

    Shape:
        reconstruction and images: [B, C, H, W]; returns a scalar.

    Raises:
        ConfigError: If `scale` is unknown.

    Example:
        >>> ReconstructionLoss(1.0)(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
        tensor(4.)
    """

    def __init__(self, weight: float = 0.0005, *, scale: Scale = "paper", num_classes: int = 10) -> None:
        super().__init__()
        if scale not in get_args(Scale):
            raise ConfigError(f"scale: expected one of {', '.join(get_args(Scale))}, got '{scale}'")
        self.weight = weight if scale == "paper" else weight * 2 * num_classes

    def forward(self, reconstruction: Tensor, images: Tensor) -> Tensor:
        """Compute the loss.

        Args:
            reconstruction: The decoder's images.
            images: The original images.

        Returns:
            A scalar.

        Raises:
            ShapeError: If the two have different shapes.
        """
        if reconstruction.shape != images.shape:
            raise ShapeError(f"reconstruction: expected {tuple(images.shape)}, got {tuple(reconstruction.shape)}")
        return self.weight * (reconstruction - images).square().flatten(1).sum(dim=-1).mean()
