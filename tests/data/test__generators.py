from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps.data._generators import load_source, other_class, place, samples_per_digit, stream, to_integers
from torchcaps.errors import ConfigError


def test_place():
    images = torch.randint(1, 256, (20, 2, 3, 5), dtype=torch.uint8)
    tops, lefts = torch.randint(0, 5, (20,)), torch.randint(0, 4, (20,))
    expected = torch.zeros(20, 2, 7, 8, dtype=torch.uint8)
    for k in range(20):
        expected[k, :, tops[k] : tops[k] + 3, lefts[k] : lefts[k] + 5] = images[k]
    assert torch.equal(place(images, tops, lefts, 7, 8), expected)


def test_other_class():
    sizes = np.array([2, 3, 1])
    classes = np.repeat(np.arange(3), sizes)
    draws = (np.arange(1200) + 0.5) / 1200
    for label in range(3):
        places = other_class(np.full(1200, label), sizes, draws)
        counts = np.bincount(places, minlength=6)
        assert (counts[classes == label] == 0).all()
        assert (counts[classes != label] == 1200 / (6 - sizes[label])).all()


def test_to_integers():
    assert to_integers(np.array([0.0, 0.999999, 1 - 2.0**-53]), 9).tolist() == [0, 8, 8]


def test_streams():
    keys = {stream(name, split, seed) for name in "ab" for split in ("train", "val", "test") for seed in (0, 1)}
    assert len(keys) == 12


def test_samples_per_digit():
    names = ("repeats", "test_repeats")
    assert [samples_per_digit(split, 7, 2, names) for split in ("train", "train+val", "val")] == [7, 7, 2]
    with raises_about(ConfigError, "test_repeats", "got 0"):
        samples_per_digit("train", 7, 0, names)


def test_unknown_source():
    with raises_about(ConfigError, "source", "got 'fashion'"):
        load_source("fashion", "train")
