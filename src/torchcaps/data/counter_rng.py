"""Counter-based random numbers: sample n gets the same numbers in every batch, process and run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number by a bijection, the finaliser of SplitMix64 (Steele et al. 2014)."""
    for shift, factor in _MIX:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def uniforms(key: int, numbers: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return `count` uniform numbers in [0, 1) for each sample number, [n, count], of the stream `key`.

    Args:
        key: Number of the stream.
        numbers: Numbers of the samples [n].
        count: Random numbers per sample.

    Returns:
        Random numbers [n, count].

    Example:
        >>> rows = uniforms(7, np.array([0, 1, 2]), 4)
        >>> bool((rows[2] == uniforms(7, np.array([2]), 4)[0]).all())
        True
    """
    counters = numbers.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(1, count + 1, dtype=np.uint64)
    bits = scramble(counters * _STEP + np.uint64(key % 2**64))  # [n, count]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permuted(key: int, numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the images of numbers [n] under a random permutation of 0 to size - 1, without storing the permutation.

    A Feistel network permutes the next even power of two; results beyond `size` are permuted again.

    Args:
        key: Number of the permutation.
        numbers: Numbers from 0 to size - 1 [n].
        size: Size of the permuted range.

    Returns:
        The permuted numbers [n].

    Example:
        >>> sorted(permuted(3, np.arange(10), 10).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = np.uint64(max(1, (max(1, size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    values = numbers.astype(np.uint64)
    waiting = np.ones(len(values), dtype=bool)
    while waiting.any():
        left, right = values[waiting] >> half, values[waiting] & mask
        for turn in range(4):
            mixed = scramble(right + np.uint64((key + turn * int(_STEP)) % 2**64))
            left, right = right, left ^ (mixed & mask)
        values[waiting] = left << half | right
        waiting = values >= size
    return values.astype(np.int64)
