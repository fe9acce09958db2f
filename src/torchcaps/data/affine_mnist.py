"""Digits under random affine maps on 40x40: a stand-in for affNIST where that cannot be had, and never called so.

In the style of affNIST, with ranges from memory: turned by up to 20 degrees either way, sheared by up to 0.2, scaled by
0.8 to 1.2, and moved anywhere where the whole digit stays on the canvas.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._generated import Copies, Source, load_copies, whole
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch
from torchcaps.data.transforms import shift

SIDE = 40
DEGREES, SLOPE, SCALE = 20.0, 0.2, 0.2
# So few at a time stay in the cache, which is several times as fast.
_AT_ONCE = 16


def load_affine_mnist(
    split: str, *, source: Source = "mnist", copies: int = 1000, test_copies: int = 1, seed: int = 0
) -> DrawnData:
    """One part of the digits under affine maps; each gives `copies` samples in training and `test_copies` elsewhere.

    `meta` holds the map of each: `degrees` (anticlockwise), `slope`, `factor`.
    """
    options = {"source": source, "copies": copies, "test_copies": test_copies, "seed": seed}
    return load_copies("affine_mnist", Moved, split, **options, style=", in the style of affNIST")


class Moved(Copies):
    """Maps each digit about the middle of the canvas, then moves it by whole pixels."""

    def __call__(self, numbers: Tensor) -> Batch:
        chosen, labels, random = self.drawn(numbers, 5)  # [n, 1, 28, 28], [n], [n, 5]
        degrees, slope = DEGREES * (2 * random[:, 0] - 1), SLOPE * (2 * random[:, 1] - 1)  # [n]
        factor = 1 + SCALE * (2 * random[:, 2] - 1)  # [n]
        digits = chosen.numpy()  # [n, 1, 28, 28]
        parts = (slice(start, start + _AT_ONCE) for start in range(0, max(1, len(digits)), _AT_ONCE))
        mapped = np.concatenate([map_images(digits[at], degrees[at], slope[at], factor[at]) for at in parts])
        images = move_inside(torch.from_numpy(mapped), random[:, 3:])  # [n, 1, 40, 40]
        meta = {"degrees": degrees, "slope": slope, "factor": factor}
        return Batch(images, labels, None, {name: torch.from_numpy(value) for name, value in meta.items()})


def map_images(images: np.ndarray, degrees: np.ndarray, slope: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Bytes [n, C, h, w] on a canvas [n, C, 40, 40], turned, enlarged and sheared about its centre, bilinearly.

    A pixel at offset (x, y) from the centre, y up, is what the image has at M^-1 (x, y), where
    M = factor R(degrees) [[1, slope], [0, 1]]. Every step is one operation on single numbers, so that a sample comes
    out the same to the last bit in whatever batch it is drawn.
    """
    count, channels, height, width = images.shape
    turns = [math.radians(angle) for angle in degrees.tolist()]
    cos, sin = (np.array([f(turn) for turn in turns]).reshape(-1, 1, 1) for f in (math.cos, math.sin))  # [n, 1, 1]
    slope, factor = slope.reshape(-1, 1, 1), factor.reshape(-1, 1, 1)  # [n, 1, 1]
    right = np.arange(SIDE) - (SIDE - 1) / 2  # [40]
    up = -right[:, None]  # [40, 1]
    across = (right * cos + up * sin) / factor  # [n, 40, 40], turned back
    above = (up * cos - right * sin) / factor  # [n, 40, 40]
    columns = across - slope * above + (width - 1) / 2  # [n, 40, 40], sheared back
    rows = (height - 1) / 2 - above  # [n, 40, 40]
    left, top = np.floor(columns), np.floor(rows)
    lower, further = rows - top, columns - left  # [n, 40, 40], shares of the next row and column
    # Two rows and columns of zeros all around, where everything outside comes from.
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


def move_inside(images: Tensor, random: np.ndarray) -> Tensor:
    """Move each image [n, C, H, W] so that the box around what is not black lies anywhere inside; random is [n, 2]."""
    height, width = images.shape[-2:]
    moves = []
    for axis, size in enumerate((height, width)):
        lit = images.amax(dim=(1, 3 - axis)) > 0  # [n, size]
        first = lit.int().argmax(dim=1)  # [n]
        last = size - 1 - lit.flip(1).int().argmax(dim=1)  # [n]
        free = first + size - 1 - last  # [n], how many pixels there are before and after
        moves.append(whole(random[:, axis], (free + 1).numpy()) - first)  # [n]
    return shift(images, *moves)


DATASETS.add(
    "affine_mnist",
    Dataset(
        description="digits turned, sheared, scaled and moved on 40x40 black pixels, in the style of affNIST",
        source="drawn from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_affine_mnist,
    ),
)
