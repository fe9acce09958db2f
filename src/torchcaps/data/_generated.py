"""What the generated data sets share: the digits that they are made of, and placing them on a canvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.data._draws import uniforms
from torchcaps.data.digits import load_digits
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch, ImageData
from torchcaps.data.loader import mix_seed
from torchcaps.data.mnist import load_mnist
from torchcaps.errors import ConfigError

Source = Literal["mnist", "digits"]
# Splits draw from streams of their own. Both parts of the training set and their union share one.
_STREAMS = {"train": 0, "val": 1, "test": 2, "train+val": 0}


def load_source(source: str, split: str) -> ImageData:
    """The digits that samples are made of: the same part of MNIST, or of the digits inside the package."""
    if source not in get_args(Source):
        raise ConfigError(f"source: expected one of {', '.join(get_args(Source))}, got {source!r}")
    return load_mnist(split) if source == "mnist" else load_digits(split)


def stream(name: str, split: str, seed: int) -> int:
    """The key of the random numbers of one split of a generated data set."""
    return mix_seed(int.from_bytes(name.encode(), "big"), _STREAMS[split], seed)


def copies_in(split: str, train: int, test: int, names: tuple[str, str]) -> int:
    """How many samples each digit gives: `train` of them in training, `test` elsewhere."""
    for name, count in zip(names, (train, test), strict=True):
        if count < 1:
            raise ConfigError(f"{name}: expected a count of at least 1, got {count}")
    return train if split.startswith("train") else test


class Copies:
    """Draws samples of one digit each: sample n is made of digit n // copies, with random numbers of its own."""

    def __init__(self, digits: ImageData, copies: int, key: int) -> None:
        self.digits = digits
        self.copies = copies
        self.key = key

    def drawn(self, numbers: Tensor, count: int) -> tuple[Tensor, Tensor, NDArray[np.float64]]:
        """The digits [n, 1, 28, 28], their labels [n], and so many random numbers for each sample, [n, count]."""
        chosen = numbers // self.copies  # [n]
        return self.digits.images[chosen], self.digits.labels[chosen], uniforms(self.key, numbers.numpy(), count)


Drawing = Callable[[ImageData, int, int], Callable[[Tensor], Batch]]


def load_copies(
    name: str, kind: Drawing, split: str, *, source: str, copies: int, test_copies: int, seed: int, style: str = ""
) -> DrawnData:
    """One part of a data set in which each digit gives `copies` samples in training and `test_copies` elsewhere."""
    digits = load_source(source, split)
    count = copies_in(split, copies, test_copies, ("copies", "test_copies"))
    origin = f"drawn from {digits.name} ({digits.origin}){style}"
    drawing = kind(digits, count, stream(name, split, seed))
    return DrawnData(name, split, digits.class_names, origin, len(digits) * count, drawing)


def other_class(labels: NDArray[np.int64], sizes: NDArray[np.int64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """A place in a list sorted by class, evenly among all that are not of these classes; sizes [J] count the list.

    >>> other_class(np.array([0, 1]), np.array([2, 3]), np.array([0.0, 0.9]))
    array([2, 1])
    """
    place = (draws * (sizes.sum() - sizes[labels])).astype(np.int64)  # [n]
    start = np.cumsum(sizes) - sizes  # [J]
    # Whoever comes after the class steps over it.
    return np.where(place < start[labels], place, place + sizes[labels])


def whole(draws: NDArray[np.float64], count: int | NDArray[np.int64]) -> Tensor:
    """Draws in [0, 1) as whole numbers from 0 to count - 1."""
    return torch.from_numpy((draws * count).astype(np.int64))


def place(images: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int) -> Tensor:
    """Put each image [B, C, h, w] on a black canvas [B, C, height, width], its corner at (tops, lefts), both [B].

    >>> place(torch.ones(1, 1, 1, 1, dtype=torch.uint8), torch.tensor([0]), torch.tensor([1]), 2, 2)[0, 0].tolist()
    [[0, 1], [0, 0]]
    """
    count, channels, inner_height, inner_width = images.shape
    free = (height - inner_height) * width + width - inner_width
    # With rows as long as the canvas's, an image is one run of pixels, and moving it is starting elsewhere.
    rows = images.new_zeros(count, channels, inner_height, width)
    rows[..., :inner_width] = images
    run = rows.flatten(2)[..., : height * width - free]  # [B, C, n]
    line = images.new_zeros(count, channels, height * width + free)
    line[..., free : free + run.shape[-1]] = run
    starts = line.unfold(2, height * width, 1)  # [B, C, free + 1, height * width]
    chosen = starts[torch.arange(count), :, free - (tops * width + lefts)]  # [B, C, height * width]
    return chosen.view(count, channels, height, width)
