"""Two overlapping shapes of different kinds, each pixel with the shape that it belongs to: a test of binding.

After the sets of two and three shapes in Reichert and Serre 2014 and Loewe et al. 2022: outlines of a square, a disc, a
triangle and a cross, of random size, at random places that overlap.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._generators import stream
from torchcaps.data._strokes import Floats, column, ink, pixel_grid, segment
from torchcaps.data.counter_rng import uniforms
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError

SIDE = 28
CLASS_NAMES = ("square", "disc", "triangle", "cross")
SIZES = {"train": 20_000, "val": 1_000, "test": 2_000, "train+val": 21_000}
# Radius of a shape, and the largest distance of its centre from that of the image, in pixels.
RADII, SHIFT = (5.0, 8.0), 5.0


def load_overlapping_shapes(split: str, *, seed: int = 0) -> GeneratedDataset:
    """Load one split of the shapes; labels are [N, 2].

    Args:
        split: `train`, `val`, `test` or `train+val`.
        seed: Seed of the shapes.

    Returns:
        A data set of images uint8 [1, 28, 28]; batches have the two shapes alone as `sources`.

    Raises:
        ConfigError: If the seed is negative.

    Example:
        >>> load_overlapping_shapes("test").batch([0]).sources.shape
        torch.Size([1, 2, 1, 28, 28])
    """
    if seed < 0:
        raise ConfigError(f"seed: expected a number of at least 0, got {seed}")
    generate = OverlappingShapes(stream("overlapping_shapes", split, seed))
    return GeneratedDataset("overlapping_shapes", split, CLASS_NAMES, "drawn", SIZES[split], generate)


class OverlappingShapes:
    """Draws two shapes of different kinds by the number of the sample.

    Args:
        key: Number of the random stream.
    """

    def __init__(self, key: int) -> None:
        self.key = key

    def __call__(self, numbers: Tensor) -> Batch:
        """Draw the samples of these numbers, int64 [n]."""
        random = uniforms(self.key, numbers.numpy(), 8)  # [n, 8]
        first = (4 * random[:, 0]).astype(np.int64)  # [n]
        second = (first + 1 + (3 * random[:, 1]).astype(np.int64)) % 4  # [n], another kind
        labels = np.stack([first, second], axis=1)  # [n, 2]
        alone = np.stack([draw_shape(labels[:, k], random[:, 2 + 3 * k : 5 + 3 * k]) for k in (0, 1)], axis=1)
        sources = torch.from_numpy(np.rint(255 * alone).astype(np.uint8))[:, :, None]  # [n, 2, 1, 28, 28]
        return Batch(sources.amax(dim=1), torch.from_numpy(labels), sources, {})


def draw_shape(kinds: np.ndarray, random: Floats) -> Floats:
    """Draw the outline of one shape per sample.

    Args:
        kinds: Class of each shape [n].
        random: Place and size of each, in [0, 1), [n, 3].

    Returns:
        Brightness from 0 to 1, [n, 28, 28].
    """
    x, y = pixel_grid(SIDE)
    x, y = (axis - SHIFT * (2 * column(random[:, k]) - 1) for k, axis in enumerate((x, y)))
    radius = RADII[0] + (RADII[1] - RADII[0]) * column(random[:, 2])
    square = np.maximum(np.abs(x), np.abs(y)) - 0.85 * radius
    disc = np.hypot(x, y) - radius
    # The largest of the distances to three lines, one of them below the centre.
    triangle = np.maximum(y, np.maximum(0.866 * x - 0.5 * y, -0.866 * x - 0.5 * y)) - 0.55 * radius
    cross = np.minimum(segment(x, y, radius), segment(y, x, radius))
    return np.choose(column(kinds).astype(np.int64), [ink(each) for each in (square, disc, triangle, cross)])


DATASETS.add(
    "overlapping_shapes",
    DatasetEntry(
        description="outlines of two overlapping shapes of four kinds: 20,000 train, 28x28 grey",
        source="drawn by this library, after the shapes of David Reichert and Thomas Serre 2014",
        licence="Apache 2.0",
        load=load_overlapping_shapes,
    ),
)
