"""Digits under random affine transformations on 40x40, a substitute for affNIST where that is not available.

The ranges are similar to those of affNIST, not the same: rotation by up to 20 degrees either way, shear by up to 0.2,
scale 0.8 to 1.2, and any position that keeps the whole digit on the canvas.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._generators import DigitGenerator, DigitSource, load_transformed, to_integers
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.data.transforms import shift

SIDE = 40
DEGREES, SLOPE, SCALE = 20.0, 0.2, 0.2
# Batches of this size fit in the CPU cache, which is several times as fast.
_CHUNK = 16


def load_affine_mnist(
    split: str, *, source: DigitSource = "mnist", repeats: int = 1000, test_repeats: int = 1, seed: int = 0
) -> GeneratedDataset:
    """Load one split of the digits under affine transformations.

    `meta` has the transformation of each: `degrees` (anticlockwise), `slope`, `factor`.

    Args:
        split: `train`, `val`, `test` or `train+val`, made of the digits of the same split of the source.
        source: `mnist`, or `digits` for those inside the package.
        repeats: Samples of each digit in training.
        test_repeats: Samples of each digit in the other splits.
        seed: Seed of the transformations.

    Returns:
        A data set of images uint8 [1, 40, 40].

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a file of the source is missing or damaged.

    Example:
        >>> data = load_affine_mnist("test", source="digits")
        >>> len(data) > 0
        True
    """
    options = {"source": source, "repeats": repeats, "test_repeats": test_repeats, "seed": seed}
    return load_transformed("affine_mnist", AffineDigits, split, **options, style=", in the style of affNIST")


class AffineDigits(DigitGenerator):
    """Transforms each digit about the centre of the canvas, then shifts it by whole pixels."""

    def __call__(self, numbers: Tensor) -> Batch:
        """Generate the samples of these numbers, int64 [n]."""
        chosen, labels, random = self.choose(numbers, 5)  # [n, 1, 28, 28], [n], [n, 5]
        degrees, slope = DEGREES * (2 * random[:, 0] - 1), SLOPE * (2 * random[:, 1] - 1)  # [n]
        factor = 1 + SCALE * (2 * random[:, 2] - 1)  # [n]
        digits = chosen.numpy()  # [n, 1, 28, 28]
        chunks = (slice(start, start + _CHUNK) for start in range(0, max(1, len(digits)), _CHUNK))
        mapped = np.concatenate([transform_images(digits[at], degrees[at], slope[at], factor[at]) for at in chunks])
        turned = torch.from_numpy(mapped)  # [n, 1, 40, 40]
        down, right = moves_inside(turned, random[:, 3:])  # [n]
        meta = {"degrees": degrees, "slope": slope, "factor": factor}
        known = {name: torch.from_numpy(value) for name, value in meta.items()}
        return Batch(shift(turned, down, right), labels, None, {**known, "down": down, "right": right})


def transform_images(images: np.ndarray, degrees: np.ndarray, slope: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Rotate, scale and shear bytes [n, C, h, w] about the centre of a canvas [n, C, 40, 40], bilinearly.

    The pixel at offset (x, y) from the centre, y upwards, is that of the image at M^-1 (x, y), where
    M = factor R(degrees) [[1, slope], [0, 1]]. All operations are elementwise, so that a sample has the same bits in
    every batch.

    Args:
        images: Images, uint8 [n, C, h, w].
        degrees: Angles [n].
        slope: Shear [n].
        factor: Scale [n].

    Returns:
        Images, uint8 [n, C, 40, 40].
    """
    count, channels, height, width = images.shape
    turns = [math.radians(angle) for angle in degrees.tolist()]
    cos, sin = (np.array([f(turn) for turn in turns]).reshape(-1, 1, 1) for f in (math.cos, math.sin))  # [n, 1, 1]
    slope, factor = slope.reshape(-1, 1, 1), factor.reshape(-1, 1, 1)  # [n, 1, 1]
    right = np.arange(SIDE) - (SIDE - 1) / 2  # [40]
    up = -right[:, None]  # [40, 1]
    across = (right * cos + up * sin) / factor  # [n, 40, 40], rotation undone
    above = (up * cos - right * sin) / factor  # [n, 40, 40]
    columns = across - slope * above + (width - 1) / 2  # [n, 40, 40], shear undone
    rows = (height - 1) / 2 - above  # [n, 40, 40]
    left, top = np.floor(columns), np.floor(rows)
    lower, further = rows - top, columns - left  # [n, 40, 40], weights of the next row and column
    # Two rows and columns of zeros on each side, for all pixels outside the image.
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))).reshape(count, channels, (height + 4) * (width + 4))
    row = np.clip(top, -2, height).astype(np.int64) + 2  # [n, 40, 40]
    column = np.clip(left, -2, width).astype(np.int64) + 2
    corner = (row * (width + 4) + column).reshape(count, 1, SIDE * SIDE)  # [n, 1, 1600]
    total = 0.0
    for step, weight in (
        (0, (1 - lower) * (1 - further)),
        (1, (1 - lower) * further),
        (width + 4, lower * (1 - further)),
        (width + 5, lower * further),
    ):
        total = total + weight.reshape(count, 1, SIDE * SIDE) * np.take_along_axis(padded, corner + step, axis=2)
    return np.rint(total).astype(np.uint8).reshape(count, channels, SIDE, SIDE)


def moves_inside(images: Tensor, random: np.ndarray) -> list[Tensor]:
    """Return random moves, down and right [n], that keep the bounding box of each image [n, C, H, W] inside."""
    height, width = images.shape[-2:]
    moves = []
    for axis, size in enumerate((height, width)):
        lit = images.amax(dim=(1, 3 - axis)) > 0  # [n, size]
        first = lit.int().argmax(dim=1)  # [n]
        last = size - 1 - lit.flip(1).int().argmax(dim=1)  # [n]
        free = first + size - 1 - last  # [n], free pixels before and after
        moves.append(to_integers(random[:, axis], (free + 1).numpy()) - first)  # [n]
    return moves


DATASETS.add(
    "affine_mnist",
    DatasetEntry(
        description="digits rotated, sheared, scaled and shifted on 40x40 black pixels, in the style of affNIST",
        source="generated from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_affine_mnist,
    ),
)
