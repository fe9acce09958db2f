from __future__ import annotations

import numpy as np
import pytest
import torch

from torchcaps.data._generated import copies_in, load_source, other_class, place, stream, whole
from torchcaps.errors import ConfigError


def test_placing_is_copying_into_zeros():
    images = torch.randint(1, 256, (20, 2, 3, 5), dtype=torch.uint8)
    tops, lefts = torch.randint(0, 5, (20,)), torch.randint(0, 4, (20,))
    expected = torch.zeros(20, 2, 7, 8, dtype=torch.uint8)
    for k in range(20):
        expected[k, :, tops[k] : tops[k] + 3, lefts[k] : lefts[k] + 5] = images[k]
    assert torch.equal(place(images, tops, lefts, 7, 8), expected)


def test_the_other_class_is_any_but_this_one_evenly():
    sizes = np.array([2, 3, 1])
    classes = np.repeat(np.arange(3), sizes)
    draws = (np.arange(1200) + 0.5) / 1200
    for label in range(3):
        places = other_class(np.full(1200, label), sizes, draws)
        counts = np.bincount(places, minlength=6)
        assert (counts[classes == label] == 0).all()
        assert (counts[classes != label] == 1200 / (6 - sizes[label])).all()


def test_whole_numbers_reach_both_ends():
    assert whole(np.array([0.0, 0.999999, 1 - 2.0**-53]), 9).tolist() == [0, 8, 8]


def test_streams_differ():
    keys = {stream(name, split, seed) for name in "ab" for split in ("train", "val", "test") for seed in (0, 1)}
    assert len(keys) == 12


def test_training_has_more_samples_of_a_digit():
    assert [copies_in(split, 7, 2, ("pairs", "test_pairs")) for split in ("train", "train+val", "val")] == [7, 7, 2]
    with pytest.raises(ConfigError, match="test_pairs: expected a count of at least 1, got 0"):
        copies_in("train", 7, 0, ("pairs", "test_pairs"))


def test_unknown_source():
    with pytest.raises(ConfigError, match="source: expected one of mnist, digits, got 'fashion'"):
        load_source("fashion", "train")
