from __future__ import annotations

import torch

import torchcaps as tc
from torchcaps.data import load_digits


def test_digits_are_side_by_side():
    digits, data = load_digits("test"), tc.load_data("digit_pairs", "test", source="digits", test_repeats=3)
    assert (len(data), data.image_shape) == (3000, (1, 28, 56))
    batch = data.batch(torch.arange(0, 3000, 30))
    left, right = batch.images.split(28, dim=-1)
    assert torch.equal(left, digits.images[::10])
    assert torch.equal(batch.labels[:, 0], digits.labels[::10])
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()
    for image, label in zip(right, batch.labels[:, 1], strict=True):
        (place,) = (digits.images == image).flatten(1).all(1).nonzero().flatten().tolist()
        assert digits.labels[place] == label


def test_sources():
    batch = tc.load_data("digit_pairs", "val", source="digits").batch([4, 9])
    assert batch.sources is not None
    assert torch.equal(batch.sources.sum(dim=1, dtype=torch.uint8), batch.images)
    assert batch.sources[:, 0, ..., 28:].max() == 0
    assert batch.sources[:, 1, ..., :28].max() == 0


def test_sample_does_not_depend_on_the_batch():
    data = tc.load_data("digit_pairs", "train", source="digits")
    assert torch.equal(data.batch([5, 4_000_000]).images[1], data.batch([4_000_000]).images[0])
