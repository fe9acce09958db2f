"""Mean and standard deviation over runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """Mean and sample standard deviation of `count` values; a single value has no deviation.

    Args:
        mean: Mean of the values.
        std: Sample standard deviation, or None for a single value.
        count: Number of values.
    """

    mean: float
    std: float | None
    count: int


def summarize(values: Iterable[float | None]) -> Statistic | None:
    """Return the statistic of the values that are not None, or None if there are none.

    Args:
        values: The values.

    Returns:
        Mean, deviation and count.

    Example:
        >>> summarize([0.5, 1.0, None])
        Statistic(mean=0.75, std=0.3535533905932738, count=2)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Statistic(statistics.mean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def format_statistic(value: Statistic | None, digits: int, scale: float = 1) -> str:
    """Format as `mean ± std`; None gives an empty string.

    Args:
        value: The statistic.
        digits: Number of decimals.
        scale: Factor for mean and deviation.

    Returns:
        The text.

    Example:
        >>> format_statistic(summarize([0.5, 1.0]), 1, scale=100)
        '75.0 ± 35.4'
    """
    if value is None:
        return ""
    mean = f"{scale * value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ± {scale * value.std:.{digits}f}"


def format_percent(value: Statistic | None, digits: int) -> str:
    """Format a fraction in %; None gives an empty string."""
    return "" if value is None else f"{format_statistic(value, digits, 100)} %"
