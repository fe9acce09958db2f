"""Drawn faces, whole or with their parts in wrong places: the Picasso problem of the lectures on capsules.

A face has an outline, two eyes, a nose and a mouth. The class follows from the parts: the mouth smiles or frowns, the
eyes are open or closed. Each part is moved by up to a pixel on its own; the face is moved, turned and scaled. In a
scrambled face the same eyes, nose and mouth have exchanged their places, so that it is no face.
"""

from __future__ import annotations

from itertools import permutations

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
CLASS_NAMES = ("smile, open eyes", "smile, closed eyes", "frown, open eyes", "frown, closed eyes")
# Places of the two eyes, the nose and the mouth, right and down of the centre of the face.
PLACES = np.array([(-4.0, -4.0), (4.0, -4.0), (0.0, 0.5), (0.0, 6.0)])
# Which place each of the four parts has; the first is a whole face, the two eyes count as equal.
ORDERS = np.array([order for order in permutations(range(4)) if order[0] < order[1]])
SIZES = {"train": 20_000, "val": 1_000, "test": 4_000, "train+val": 21_000}
DEGREES, SCALE, SHIFT = 10.0, 0.1, 1.5


def load_faces(split: str, *, scrambled: bool = False, seed: int = 0) -> GeneratedDataset:
    """Load one split of the faces.

    `meta["order"]` is 0 for a whole face, else 1 to 11: which parts have exchanged their places.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        scrambled: Whether parts have exchanged their places. The parts of face n are the same either way.
        seed: Seed of the faces.

    Returns:
        A data set of images uint8 [1, 28, 28] in four classes.

    Raises:
        ConfigError: If the seed is negative.

    Example:
        >>> load_faces("test")[0][0].shape
        torch.Size([1, 28, 28])
    """
    if seed < 0:
        raise ConfigError(f"seed: expected a number of at least 0, got {seed}")
    generate = Faces(stream("faces", split, seed), scrambled)
    origin = "drawn, with parts in wrong places" if scrambled else "drawn"
    return GeneratedDataset("faces", split, CLASS_NAMES, origin, SIZES[split], generate)


class Faces:
    """Draws faces by their numbers.

    Args:
        key: Number of the random stream.
        scrambled: Whether parts have exchanged their places.
    """

    def __init__(self, key: int, scrambled: bool) -> None:
        self.key = key
        self.scrambled = scrambled

    def __call__(self, numbers: Tensor) -> Batch:
        """Draw the faces of these numbers, int64 [n]."""
        random = uniforms(self.key, numbers.numpy(), 14)  # [n, 14]
        labels = (4 * random[:, 0]).astype(np.int64)  # [n]
        order = 1 + (len(ORDERS) - 1) * random[:, 1] if self.scrambled else 0 * random[:, 1]
        order = order.astype(np.int64)  # [n]
        jitter = 2 * random[:, 6:].reshape(-1, 4, 2) - 1  # [n, 4, 2]
        at = PLACES[ORDERS[order]] + jitter  # [n, 4, 2], place of each part
        x, y = _face_grid(2 * random[:, 2:6] - 1)  # [n, 28, 28]
        parts: list[Floats] = [np.hypot(x / 9.5, y / 12) * 10.5 - 10.5]  # the outline
        closed, frown = column(labels % 2), column(labels // 2)
        for eye in (0, 1):
            right, down = x - column(at[:, eye, 0]), y - column(at[:, eye, 1])
            parts.append(np.where(closed > 0, segment(right, down, 2.0), np.hypot(right, down) - 1.6))
        right, down = x - column(at[:, 2, 0]), y - column(at[:, 2, 1])
        parts.append(segment(down, right, 2.0))  # the nose stands upright
        right, down = x - column(at[:, 3, 0]), y - column(at[:, 3, 1])
        bow = (1 - 2 * frown) * (1.2 - 0.15 * np.minimum(np.abs(right), 4) ** 2)
        parts.append(segment(right, down - bow, 4.0))
        pixels = np.stack([ink(part) for part in parts]).max(axis=0)  # [n, 28, 28]
        images = torch.from_numpy(np.rint(255 * pixels).astype(np.uint8))[:, None]  # [n, 1, 28, 28]
        return Batch(images, torch.from_numpy(labels), None, {"order": torch.from_numpy(order)})


def _face_grid(random: Floats) -> tuple[Floats, Floats]:
    """Return the pixels in the coordinates of each face, [n, 28, 28]; random [n, 4] in -1 to 1."""
    x, y = pixel_grid(SIDE)
    x, y = x - SHIFT * column(random[:, 0]), y - SHIFT * column(random[:, 1])
    turn, scale = column(np.deg2rad(DEGREES * random[:, 2])), 1 + SCALE * column(random[:, 3])
    return (x * np.cos(turn) + y * np.sin(turn)) / scale, (y * np.cos(turn) - x * np.sin(turn)) / scale


DATASETS.add(
    "faces",
    DatasetEntry(
        description="drawn faces of four kinds, whole or with parts in wrong places: 20,000 train, 28x28 grey",
        source="drawn by this library, for the Picasso problem",
        licence="Apache 2.0",
        load=load_faces,
    ),
)
