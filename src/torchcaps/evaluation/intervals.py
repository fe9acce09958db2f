"""Confidence intervals: Wilson's interval of a share, and the bootstrap over images."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ConfigError

CONFIDENCE = 0.95
# The 97.5 % quantile of the normal distribution.
_Z = 1.959963984540054
# Weights that are held at a time.
_CHUNK = 2_000_000

Interval = tuple[float, float]


def wilson(successes: int, count: int) -> Interval:
    """Return Wilson's interval of 95 % for a share (Wilson 1927).

    Unlike mean plus or minus deviation, it stays in [0, 1] and has a width even if all cases are successes.

    Args:
        successes: Number of successes.
        count: Number of cases.

    Returns:
        Lower and upper limit.

    Raises:
        ConfigError: If there are no cases.

    Example:
        >>> [round(limit, 3) for limit in wilson(23, 59)]
        [0.276, 0.517]
    """
    if not 0 <= successes <= count or count == 0:
        raise ConfigError(f"successes: expected 0 to count, of at least one case, got {successes} of {count}")
    share, squared = successes / count, _Z**2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    half = _Z / (1 + squared / count) * math.sqrt(share * (1 - share) / count + squared / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap_weights(count: int, resamples: int, seed: int = 0) -> Iterator[Tensor]:
    """Yield bootstrap samples in chunks: how often each image is drawn.

    Args:
        count: Number of images N.
        resamples: Number of samples R in total.
        seed: Seed of the samples.

    Shape:
        Yields [chunk, N] of float64, each row with the sum N.

    Yields:
        The weights of one chunk.

    Example:
        >>> [tuple(weights.shape) for weights in bootstrap_weights(5, 100)]
        [(100, 5)]
    """
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, _CHUNK // max(1, count))
    for first in range(0, resamples, rows):
        chunk = min(rows, resamples - first)
        drawn = torch.randint(count, (chunk, count), generator=generator)  # [chunk, N]
        yield torch.zeros(chunk, count, dtype=torch.float64).scatter_add_(1, drawn, torch.ones_like(drawn).double())


def percentiles(samples: Tensor) -> Interval | None:
    """Return the interval that holds the middle 95 % of bootstrap samples.

    Args:
        samples: The value on each sample; NaN where it is not defined.

    Shape:
        samples: [R].

    Returns:
        Lower and upper limit, or None if no sample has a value.

    Example:
        >>> percentiles(torch.arange(101.0))
        (2.5, 97.5)
    """
    known = samples[~samples.isnan()]
    if not len(known):
        return None
    limits = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=known.dtype)
    low, high = known.quantile(limits).tolist()
    return low, high
