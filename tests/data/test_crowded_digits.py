from __future__ import annotations

import numpy as np
import pytest
import torch

import torchcaps as tc
from raising import raises_about
from torchcaps.data import load_digits
from torchcaps.errors import ConfigError


def load(**options):
    return tc.load_data("crowded_digits", "test", source="digits", **options)


def test_identical_digits_are_one_image_twice():
    digits, batch = load_digits("test"), load(pairs="identical").batch(range(200))
    assert (batch.labels[:, 0] == batch.labels[:, 1]).all()
    assert batch.meta["identical"].all()
    assert batch.sources is not None
    small = digits.images[:200].float().unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))  # [200, 1, 14, 14]
    for place in range(200):
        distance = int(batch.meta["distance"][place])
        one, other = batch.sources[place, :, 0].numpy().astype(int)
        assert np.array_equal(np.roll(one, distance, axis=1), other)
        assert one.sum() == pytest.approx(float(small[place].sum()), abs=196)
        assert np.array_equal(batch.images[place, 0], np.minimum(255, one + other))


def test_different_digits_have_different_classes_and_distances():
    batch = load(pairs="different", test_repeats=3).batch(range(3000))
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()
    assert not batch.meta["identical"].any()
    assert batch.meta["distance"].bincount().tolist() == pytest.approx([200] * 15, abs=60)


def test_half_of_the_mixed_pairs_are_identical():
    data = load()
    same = data.labels[:, 0] == data.labels[:, 1]
    assert same.float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert torch.equal(same.long(), data.meta["identical"])


def test_option_out_of_range():
    with raises_about(ConfigError, "pairs", "'equal'"):
        load(pairs="equal")
