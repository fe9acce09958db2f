from __future__ import annotations

import math

import numpy as np
import torch

import torchcaps as tc
from torchcaps.data import load_digits, to_float
from torchcaps.data._generators import place
from torchcaps.data.affine_mnist import moves_inside, transform_images
from torchcaps.data.transforms import affine, shift

DEGREES, SLOPE, FACTOR = (np.array(values) for values in ([20.0, -13, 0, 5], [0.2, -0.1, 0, 0.15], [0.8, 1.2, 1, 1.1]))


def test_same_map_as_augmentation():
    digits = load_digits("test").images[::300]
    canvas = to_float(place(digits, torch.full((4,), 6), torch.full((4,), 6), 40, 40))
    angle, slope, factor = (torch.from_numpy(v).float() for v in (np.radians(DEGREES), SLOPE, FACTOR))
    expected = 255 * affine(canvas, angle, factor, slope)
    got = torch.from_numpy(transform_images(digits.numpy(), DEGREES, SLOPE, FACTOR))
    assert (got - expected).abs().max() < 0.51


def test_one_pixel():
    image = np.zeros((1, 1, 29, 29), np.uint8)
    image[0, 0, 14 - 6, 14 + 3] = 255
    turn, slope, factor = math.radians(20), 0.2, 1.2
    x, y = 3 + slope * 6, 6
    x, y = factor * (math.cos(turn) * x - math.sin(turn) * y), factor * (math.sin(turn) * x + math.cos(turn) * y)
    got = transform_images(image, np.array([20.0]), np.array([slope]), np.array([factor]))[0, 0].astype(float)
    rows, columns = np.mgrid[:40, :40]
    assert abs((got * columns).sum() / got.sum() - (19.5 + x)) < 0.3
    assert abs((got * rows).sum() / got.sum() - (19.5 - y)) < 0.3


def test_identity():
    digits = load_digits("test").images[:5]
    still = transform_images(digits.numpy(), np.zeros(5), np.zeros(5), np.ones(5))
    assert np.array_equal(still[..., 6:34, 6:34], digits.numpy())
    assert still.sum() == digits.numpy().astype(np.uint8).sum()


def test_moves_stay_inside():
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 2:5, 3:8] = 7
    draws = np.stack(np.meshgrid(np.linspace(0, 0.999, 40), np.linspace(0, 0.999, 40)), -1).reshape(-1, 2)
    images = image.expand(len(draws), -1, -1, -1)
    moved = shift(images, *moves_inside(images, draws))
    assert (moved.flatten(1).sum(1, dtype=torch.int64) == 15 * 7).all()
    assert len(moved.flatten(1).unique(dim=0)) == 7 * 5


def test_ranges():
    meta = tc.load_data("affine_mnist", "test", source="digits").meta
    for name, low, high in (("degrees", -20, 20), ("slope", -0.2, 0.2), ("factor", 0.8, 1.2)):
        values = meta[name]
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high


def test_sample_does_not_depend_on_the_batch():
    data = tc.load_data("affine_mnist", "train", source="digits")
    numbers = torch.arange(0, 4_500_000, 99_999)
    together = data.batch(numbers)
    for size in (1, 7):
        pieces = torch.cat([data.batch(piece).images for piece in numbers.split(size)])
        assert torch.equal(pieces, together.images)
    assert data.batch([]).images.shape == (0, 1, 40, 40)


def test_moves_are_recorded():
    """Undone, the moves bring every digit back to the centre of its canvas."""
    batch = tc.load_data("affine_mnist", "test", source="digits").batch(list(range(40)))
    back = shift(batch.images, -batch.meta["down"], -batch.meta["right"])
    assert not torch.equal(back, batch.images)
    weight = back[:, 0].float()
    middle = (weight.sum(1) * torch.arange(40)).sum(1) / weight.sum((1, 2))
    assert (middle - 19.5).abs().max() < 4


def test_name_is_not_affnist():
    data = tc.load_data("affine_mnist", "test", source="digits")
    assert data.name == "affine_mnist"
    assert "in the style of affNIST" in data.origin
    assert (len(data), data.image_shape) == (1000, (1, 40, 40))
