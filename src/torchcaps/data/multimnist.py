"""MultiMNIST: two overlapping digits of different classes (Sabour, Frosst, Hinton 2017, section 6.1).

Each digit is padded to 36x36 and shifted by up to 4 pixels in each direction; the two are added and clipped at 255.
Their boxes of 28x28 overlap by 80 % on average. Each training digit has 1,000 samples: sample n combines digit
n // 1000 with a random digit of another class. Other shifts give other overlaps.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._generators import (
    DigitSource,
    load_source,
    other_class,
    place,
    samples_per_digit,
    stream,
    to_integers,
)
from torchcaps.data.counter_rng import uniforms
from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.data.transforms import shrink
from torchcaps.errors import ConfigError

SHIFT = 4


def load_multimnist(
    split: str,
    *,
    source: DigitSource = "mnist",
    repeats: int = 1000,
    test_repeats: int = 1,
    seed: int = 0,
    shift: int = SHIFT,
    halved: bool = False,
) -> GeneratedDataset:
    """Load one split of MultiMNIST; labels are [N, 2].

    `meta["overlap"]` is the fraction of the box of a digit that the other box covers.

    Args:
        split: `train`, `val`, `test` or `train+val`, made of the digits of the same split of the source.
        source: `mnist`, or `digits` for those inside the package.
        repeats: Samples of each digit in training.
        test_repeats: Samples of each digit in the other splits.
        seed: Seed of pairs and shifts.
        shift: Largest shift of a digit in each direction, in pixels; with half of the side of a digit, some pairs do
            not overlap.
        halved: Whether the digits are reduced to half of their size first, which makes trainings cheaper.

    Returns:
        A data set of images uint8 [1, 36, 36], or of the side of a digit plus twice the shift; batches have the two
        digits alone as `sources`.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a file of the source is missing or damaged.

    Example:
        >>> data = load_multimnist("test", source="digits")
        >>> len(data) > 0
        True
    """
    digits = load_source(source, split)
    if halved:
        digits = halved_digits(digits)
    side = digits.image_shape[-1]
    if not 0 <= shift <= side:
        raise ConfigError(f"shift: expected 0 to {side} pixels, got {shift}")
    count = samples_per_digit(split, repeats, test_repeats, ("repeats", "test_repeats"))
    generate = OverlappingDigits(digits, count, stream("multimnist", split, seed), shift)
    origin = f"generated from {digits.name} ({digits.origin})"
    return GeneratedDataset("multimnist", split, digits.class_names, origin, len(digits) * count, generate)


def halved_digits(digits: ImageDataset) -> InMemoryDataset:
    """Return digits of half the height and width: means over blocks of four pixels.

    Args:
        digits: The digits.

    Returns:
        The same digits, smaller.
    """
    images = shrink(digits.images, digits.image_shape[-1] // 2)
    return InMemoryDataset(digits.name, digits.split, images, digits.labels, digits.class_names, digits.origin)


class PairGenerator:
    """Chooses two digits of different classes for each sample: the first by its number, the second at random."""

    def __init__(self, digits: ImageDataset, repeats: int, key: int, count: int = 1) -> None:
        self.digits = digits
        self.repeats = repeats
        self.key = key
        self.count = count
        # A copy: torch moves the tensor when it is sent to another process, and a view would point to freed memory.
        self.labels = digits.labels.numpy().copy()  # [D]
        self.sizes = np.bincount(self.labels, minlength=digits.num_classes)  # [J]
        self.by_class = np.argsort(self.labels, kind="stable")  # [D]

    def choose(self, numbers: Tensor) -> tuple[Tensor, np.ndarray]:
        """Return the indices of both digits [n, 2], and further random numbers, [n, count - 1]."""
        first = numbers.numpy() // self.repeats  # [n]
        random = uniforms(self.key, numbers.numpy(), self.count)  # [n, count]
        second = self.by_class[other_class(self.labels[first], self.sizes, random[:, 0])]  # [n]
        return torch.from_numpy(np.stack([first, second], axis=1)), random[:, 1:]


class OverlappingDigits(PairGenerator):
    """Generates the samples of MultiMNIST."""

    def __init__(self, digits: ImageDataset, repeats: int, key: int, shift: int = SHIFT) -> None:
        super().__init__(digits, repeats, key, count=5)
        self.shift = shift

    def __call__(self, numbers: Tensor) -> Batch:
        """Generate the samples of these numbers, int64 [n]."""
        chosen, random = self.choose(numbers)  # [n, 2], [n, 4]
        # A corner from 0 to 8 is the centre, shifted by -4 to 4.
        corners = to_integers(random, 2 * self.shift + 1).view(-1, 2, 2)  # [n, 2, 2], top and left of each
        flat = self.digits.images[chosen.flatten()]  # [2 n, 1, 28, 28]
        tops, lefts = corners.flatten(0, 1).unbind(1)  # [2 n]
        side = flat.shape[-1] + 2 * self.shift
        sources = place(flat, tops, lefts, side, side).unflatten(0, (-1, 2))  # [n, 2, 1, 36, 36]
        first, second = sources.unbind(1)  # [n, 1, 36, 36]
        # Clipped at 255 within bytes: the excess is not added.
        images = first + second.minimum(255 - first)  # [n, 1, 36, 36]
        height, width = flat.shape[-2:]
        apart = (corners[:, 0] - corners[:, 1]).abs()  # [n, 2]
        shared = (height - apart[:, 0]).clamp(min=0) * (width - apart[:, 1]).clamp(min=0)  # [n]
        return Batch(images, self.digits.labels[chosen], sources, {"overlap": shared / (height * width)})


DATASETS.add(
    "multimnist",
    DatasetEntry(
        description="two overlapping digits of different classes, 36x36 grey: 1,000 pairs per training digit",
        source="Sara Sabour, Nicholas Frosst, Geoffrey Hinton 2017; generated from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_multimnist,
    ),
)
