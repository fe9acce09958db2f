"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from torchcaps.train.recipe import OptimRecipe


def lr_factor(optim: OptimRecipe, step: int, total: int) -> float:
    """What the learning rate is multiplied by at a step (from 0) of `total`.

    Over the first `warmup` steps it rises linearly to 1. Then it stays (constant), falls as decay^(step / decay_every)
    (exponential: the smooth form of "times 0.96 every 2000 steps"), or as half a cosine down to 0 (cosine).

    >>> lr_factor(OptimRecipe(schedule="exponential", decay=0.5, decay_every=10), step=20, total=100)
    0.25
    """
    if step < optim.warmup:
        return (step + 1) / (optim.warmup + 1)
    if optim.schedule == "exponential":
        return optim.decay ** (step / optim.decay_every)
    if optim.schedule == "cosine":
        done = (step - optim.warmup) / max(1, total - optim.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return 1.0
