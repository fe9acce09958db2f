"""The spread loss of matrix capsules, whose margin grows while a network learns."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn.losses import LOSSES
from torchcaps.types import Capsules

Growth = Literal["linear", "released"]
STEPS, START, END = 10000, 0.2, 0.9


class SpreadLoss(nn.Module):
    """The true class more active than every other by a margin m.

    sum over i != t of max(0, m - (a_t - a_i))^2, mean over the batch (Hinton et al. 2018, eq. 3). The margin grows from
    0.2 to 0.9: `linear` in a number of steps, or as in the released code, 0.2 + 0.79 sigmoid(min(10, n/50000 - 4)) at
    step n. A step is a call in training mode; `step` counts them and is part of the state, so that a resumed run keeps
    its margin. Labels are class numbers [B].

    >>> caps = Capsules(torch.zeros(1, 2, 4), torch.tensor([[0.6, 0.5]]))
    >>> loss = SpreadLoss(steps=100)
    >>> loss(caps, torch.tensor([0])), round(loss.margin, 3)
    (tensor(0.0100), 0.207)
    """

    step: Tensor

    def __init__(
        self, *, growth: Growth = "linear", steps: int = STEPS, start: float = START, end: float = END
    ) -> None:
        super().__init__()
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
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def margin(self) -> float:
        """The margin at the present step."""
        step = int(self.step)
        if self.growth == "released":
            return 0.2 + 0.79 / (1 + math.exp(-min(10.0, step / 50000 - 4)))
        return self.start + (self.end - self.start) * min(1.0, step / self.steps)

    def forward(self, capsules: Capsules, labels: Tensor) -> Tensor:
        activations = capsules.activations  # [B, J]
        if labels.shape != activations.shape[:1]:
            raise ShapeError(
                f"labels: expected {tuple(activations.shape[:1])} class numbers, got {tuple(labels.shape)}"
            )
        margin = self.margin
        if self.training:
            self.step += 1
        true = activations.gather(1, labels.unsqueeze(1))  # [B, 1]
        short = F.relu(margin - (true - activations)).square()  # [B, J]
        other = 1 - F.one_hot(labels, activations.shape[1]).to(short)  # [B, J]
        return (short * other).sum(dim=-1).mean()


LOSSES.add("spread", SpreadLoss)
