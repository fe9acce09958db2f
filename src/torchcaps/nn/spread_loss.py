"""The spread loss of matrix capsules, whose margin grows during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn.losses import LOSSES, WeightedLoss, check_class_capsules, check_labels, one_hot
from torchcaps.ops import transforms_active
from torchcaps.types import Capsules

Growth = Literal["linear", "released"]
STEPS, START, END = 10000, 0.2, 0.9


@LOSSES.register("spread")
class SpreadLoss(WeightedLoss):
    """Spread loss: the true class is more active than every other by a margin m, which grows during training.

    sum over i != t of max(0, m - (a_t - a_i))^2, mean over the batch (Hinton et al. 2018, eq. 3). A step is a call in
    training mode, outside of transforms of `torch.func`; the buffer `step` counts them, so that a resumed run keeps its
    margin.

    Args:
        growth: `linear` grows the margin from `start` to `end` in `steps` steps; `released` is the schedule of the
            released code, 0.2 + 0.79 sigmoid(min(10, n/50000 - 4)) at step n.
        steps: Number of steps of linear growth.
        start: First margin of linear growth.
        end: Last margin of linear growth.
        mean_over_classes: Divide the sum by the number of classes, as in the released code.
        weight: Weight of the samples of each class; see `WeightedLoss`.

    Shape:
        capsules: activations [B, J]; labels: class numbers [B]; returns a scalar.

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> caps = Capsules(torch.zeros(1, 2, 4), torch.tensor([[0.6, 0.5]]))
        >>> loss = SpreadLoss(steps=100)
        >>> loss(caps, torch.tensor([0])), round(float(loss.margin), 3)
        (tensor(0.0100), 0.207)
    """

    step: Tensor

    def __init__(
        self,
        *,
        growth: Growth = "linear",
        steps: int = STEPS,
        start: float = START,
        end: float = END,
        mean_over_classes: bool = False,
        weight: Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__(weight)
        if growth not in get_args(Growth):
            raise ConfigError(f"growth: expected one of {', '.join(get_args(Growth))}, got '{growth}'")
        if growth == "released" and (steps, start, end) != (STEPS, START, END):
            raise ConfigError("growth: expected 'linear' where steps, start or end are given, got 'released'")
        if steps < 1:
            raise ConfigError(f"steps: expected a count of at least 1, got {steps}")
        self.growth: Growth = growth
        self.steps = steps
        self.start = start
        self.end = end
        self.mean_over_classes = mean_over_classes
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def margin(self) -> Tensor:
        """The margin of the present step, a scalar tensor: no value is read back from the device."""
        # In float64 as the numbers of a Python program would be; Apple's devices have float32 only.
        step = self.step.to(torch.float32 if self.step.device.type == "mps" else torch.float64)
        if self.growth == "released":
            return 0.2 + 0.79 / (1 + (-(step / 50000 - 4).clamp(max=10)).exp())
        return self.start + (self.end - self.start) * (step / self.steps).clamp(max=1)

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        """Compute the loss, and count a step in training mode.

        Args:
            capsules: The class capsules.
            labels: The class of each sample.

        Returns:
            A scalar.

        Raises:
            ShapeError: If the labels do not fit the capsules.
        """
        check_class_capsules(capsules)
        activations = capsules.activations  # [B, J]
        if labels.shape != activations.shape[:1]:
            raise ShapeError(
                f"labels: expected {tuple(activations.shape[:1])} class numbers, got {tuple(labels.shape)}"
            )
        check_labels(labels, activations.shape[1])
        margin = self.margin.to(activations.dtype)
        # A transform may not change a buffer; the calls that compiled code makes are steps.
        if self.training and (torch.compiler.is_compiling() or not transforms_active()):
            self.step += 1
        true = activations.gather(1, labels.unsqueeze(1))  # [B, 1]
        short = F.relu(margin - (true - activations)).square()  # [B, J]
        targets = one_hot(labels, activations.shape[1])  # [B, J]
        short = short * ~targets  # [B, J]
        if self.weight is None and self.mean_over_classes:
            return short.mean()
        return self.mean(short.mean(dim=-1) if self.mean_over_classes else short.sum(dim=-1), targets)
