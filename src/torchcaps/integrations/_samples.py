"""Arrays of scikit-learn as samples of an image network."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError

ImageShape = tuple[int, int, int]
# An array [n, H, W] with a side below this is rather [n, channels, length].
_SMALLEST_SIDE = 4


class Samples(NamedTuple):
    """Distinct samples in an order that depends on their values alone.

    Equal samples are one sample with the sum of their weights, and samples of weight 0 are left out. Hence a weight of
    3 is the same as three copies, bit by bit, and the order of the rows has no effect.

    Args:
        rows: Float32 [N, F].
        labels: Class numbers [N].
        weights: Positive float64 [N].
        keys: A hash of each sample, uint64 [N, 2].
    """

    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    keys: np.ndarray

    def take(self, index: np.ndarray) -> Samples:
        """Return the samples with these numbers."""
        return Samples(*(part[index] for part in self))

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        """Draw N sample numbers in random order, each sample in proportion to its weight.

        Systematic sampling: a sample with the share w of all weights is drawn floor(N w) or ceil(N w) times, and
        samples of equal weights are drawn once each.
        """
        ends = np.cumsum(self.weights)
        places = (np.arange(len(ends)) + generator.uniform(0.05, 0.95)) * (ends[-1] / len(ends))
        return generator.permutation(np.minimum(np.searchsorted(ends, places, side="right"), len(ends) - 1))

    def hold_out(self, share: float, generator: np.random.Generator) -> tuple[Samples, Samples]:
        """Divide the samples, class by class, into those to train on and a share that is held out."""
        held = [
            generator.permutation(members)[: int(share * len(members))]
            for members in (np.flatnonzero(self.labels == label) for label in np.unique(self.labels))
        ]
        out = np.zeros(len(self.labels), dtype=bool)
        out[np.concatenate(held)] = True
        return self.take(np.flatnonzero(~out)), self.take(np.flatnonzero(out))

    def hold_out_by_key(self, share: float) -> tuple[Samples, Samples]:
        """Divide the samples by their hash: a sample that comes again falls on the same side."""
        out = self.keys[:, 0] < np.uint64(min(share, 1.0) * (2**64 - 2**11))
        return self.take(np.flatnonzero(~out)), self.take(np.flatnonzero(out))


def make_samples(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Samples:
    """Merge equal rows with equal labels and sort them by a hash of their values."""
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    rows = np.ascontiguousarray(rows) + np.float32(0)
    digests = [
        hashlib.blake2b(row.tobytes(), digest_size=16, salt=int(label).to_bytes(8, "little")).digest()
        for row, label in zip(rows, labels, strict=True)
    ]
    keys = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
    keys, first, groups = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    samples = Samples(rows[first], labels[first], np.bincount(groups.reshape(-1), weights, len(first)), keys)
    return samples.take(np.flatnonzero(samples.weights > 0))


class ImageLayout(NamedTuple):
    """How a row of numbers becomes an image with values around [0, 1].

    Args:
        shape: Channels, height and width. A shorter row is padded with zeros.
        low: Value that becomes 0.
        high: Value that becomes 1.
        factor: Each pixel becomes a square of this size, so that small images fit a network.
    """

    shape: ImageShape
    low: float
    high: float
    factor: int = 1

    @property
    def image_shape(self) -> ImageShape:
        """Channels, height and width of the images that the network gets."""
        channels, height, width = self.shape
        return channels, height * self.factor, width * self.factor

    def images(self, rows: np.ndarray) -> Tensor:
        """Convert rows [n, F] to images [n, C, H, W]."""
        scaled = (torch.tensor(rows) - self.low) / (self.high - self.low)  # [n, F]
        scaled = F.pad(scaled, (0, math.prod(self.shape) - scaled.shape[1]))  # [n, C*H*W]
        images = scaled.view(-1, *self.shape)  # [n, C, H, W]
        return images.repeat_interleave(self.factor, 2).repeat_interleave(self.factor, 3) if self.factor > 1 else images


def find_range(rows: np.ndarray) -> tuple[float, float]:
    """Return the values between which 98 % of all numbers lie, or the smallest and the largest if these are equal."""
    values = rows.reshape(-1)
    # A million of them give the quantiles to a thousandth of their rank.
    low, high = np.quantile(values[:: max(1, len(values) // 10**6)], (0.01, 0.99))
    if low == high:
        low, high = values.min(), values.max()
    return float(low), float(high) if high > low else float(low) + 1


def find_image_shape(shape: Sequence[int], wanted: Sequence[int] | None) -> ImageShape:
    """Return channels, height and width of the images in an array.

    Args:
        shape: Shape of the array: [n, F], [n, H, W] or [n, C, H, W].
        wanted: The user's `image_shape`, (C, H, W) or (H, W).

    Returns:
        The shape of one image; the smallest square that holds a row of F numbers if nothing is wanted.

    Raises:
        ShapeError: If the array does not hold such images.
    """
    size = math.prod(shape[1:])
    if wanted is not None:
        full = (1, *wanted) if len(wanted) == 2 else tuple(wanted)
        if len(full) != 3 or min(full) < 1 or math.prod(full) != size:
            raise ShapeError(f"image_shape: expected (C, H, W) or (H, W) with {size} values, got {tuple(wanted)}")
        return full
    if len(shape) == 2:
        side = math.isqrt(max(size, 1) - 1) + 1
        return 1, side, side
    if len(shape) == 3 and min(shape[1:]) >= _SMALLEST_SIDE:
        return 1, shape[1], shape[2]
    if len(shape) == 4:
        if shape[1] > 4 >= shape[3]:
            raise ShapeError(f"X: expected images [n, C, H, W], got {tuple(shape)} (channels come first)")
        return shape[1], shape[2], shape[3]
    hint = "signals are not supported; flatten them and give an image_shape" if len(shape) == 3 else "no images"
    raise ShapeError(f"X: expected [n, features], [n, H, W] or [n, C, H, W], got {tuple(shape)} ({hint})")


def check_number(name: str, value: object, low: float, high: float, kind: type = float) -> None:
    """Raise ConfigError unless a value is a number of a kind with low <= value <= high."""
    allowed = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, allowed) or not low <= value <= high:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name}: expected {what} from {low:g} to {high:g}, got {value!r}")
