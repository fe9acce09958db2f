from __future__ import annotations

import torch

import torchcaps as tc
from torchcaps.data import load_digits


def test_positions():
    digits, data = load_digits("test"), tc.load_data("translated_mnist", "test", source="digits")
    assert (len(data), data.image_shape) == (1000, (1, 40, 40))
    assert torch.equal(data.labels, digits.labels)
    for k in range(0, 1000, 50):
        top, left = int(data.meta["top"][k]), int(data.meta["left"][k])
        image = data.batch([k]).images[0]
        assert torch.equal(image[:, top : top + 28, left : left + 28], digits.images[k])
        assert image.sum() == digits.images[k].sum()


def test_positions_are_uniform():
    meta = tc.load_data("translated_mnist", "train", source="digits").batch(torch.arange(0, 4_500_000, 100)).meta
    for name in ("top", "left"):
        counts = torch.bincount(meta[name])
        assert len(counts) == 13
        assert (counts / counts.float().mean() - 1).abs().max() < 0.1


def test_sample_does_not_depend_on_the_batch():
    data = tc.load_data("translated_mnist", "train", source="digits")
    assert torch.equal(data.batch([5, 4_000_000]).images[1], data.batch([4_000_000]).images[0])
