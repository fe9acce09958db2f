from __future__ import annotations

import numpy as np
import pytest

from torchcaps.data.counter_rng import permuted, scramble, uniforms


def splitmix(state: int) -> int:
    """SplitMix64 as its authors give it, one number at a time."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_splitmix():
    key, count = 12345, 3
    rows = uniforms(key, np.array([0, 5]), count)
    for row, number in zip(rows, (0, 5), strict=True):
        for k in range(count):
            state = (key + (number * count + k) * 0x9E3779B97F4A7C15) % 2**64
            assert row[k] == (splitmix(state) >> 11) / 2**53


def test_numbers_are_independent_of_the_batch():
    numbers = np.array([7, 0, 10**12, 3])
    together = uniforms(1, numbers, 5)
    assert all((uniforms(1, numbers[k : k + 1], 5)[0] == together[k]).all() for k in range(4))
    assert not (uniforms(2, numbers, 5) == together).any()


def test_uniform_and_independent():
    rows = uniforms(0, np.arange(100_000), 3)
    assert rows.min() >= 0
    assert rows.max() < 1
    assert np.abs(np.histogram(rows, 10)[0] / 30_000 - 1).max() < 0.03
    assert np.abs(np.corrcoef(np.hstack([rows[:-1], rows[1:]]).T) - np.eye(6)).max() < 0.02


def test_scramble_is_a_bijection():
    assert len(np.unique(scramble(np.arange(100_000, dtype=np.uint64)))) == 100_000


@pytest.mark.parametrize("size", [1, 2, 3, 10, 256, 257, 1000])
def test_permutation(size):
    assert sorted(permuted(9, np.arange(size), size).tolist()) == list(range(size))


def test_permutation_by_key():
    whole = permuted(1, np.arange(5000), 5000)
    assert (permuted(1, np.array([4321, 17]), 5000) == whole[[4321, 17]]).all()
    assert (permuted(2, np.arange(5000), 5000) != whole).mean() > 0.99
    assert abs(np.corrcoef(whole, np.arange(5000))[0, 1]) < 0.05
