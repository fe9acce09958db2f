"""Learning-rate schedules as pure functions of the step."""

from __future__ import annotations

import math

from torchcaps.train.recipe import OptimRecipe

# The warm-up takes at most this part of a run: with few images, a recipe has fewer steps than it was made for.
SHORT = 5


def lr_factor(optim: OptimRecipe, step: int, total: int) -> float:
    """Return the factor of the learning rate at a step.

    It rises linearly to 1 over the first `warmup` steps, or over the first fifth of a short run. Then it is 1
    (constant), decay^(step / decay_every) (exponential) or half a cosine that ends at 0 (cosine).

    Args:
        optim: Schedule and its parameters.
        step: The step, from 0.
        total: Number of steps of the run.

    Returns:
        The factor.

    Example:
        >>> lr_factor(OptimRecipe(schedule="exponential", decay=0.5, decay_every=10), step=20, total=100)
        0.25
    """
    warmup = min(optim.warmup, total // SHORT)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if optim.schedule == "exponential":
        return optim.decay ** (step / optim.decay_every)
    if optim.schedule == "cosine":
        done = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return 1.0
