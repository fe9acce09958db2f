"""Shared parts of the generated data sets: their digits, random streams, and placing images on a canvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.data.counter_rng import uniforms
from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.digits import load_digits
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.loader import mix_seed
from torchcaps.data.mnist import load_mnist
from torchcaps.errors import ConfigError

DigitSource = Literal["mnist", "digits"]
# Each split has a random stream of its own; `train+val` shares that of `train`.
_STREAMS = {"train": 0, "val": 1, "test": 2, "train+val": 0}

Generator = Callable[[Tensor], Batch]


def load_source(source: str, split: str) -> ImageDataset:
    """Load the digits that samples are made of: one split of MNIST, or of the digits inside the package."""
    if source not in get_args(DigitSource):
        raise ConfigError(f"source: expected one of {', '.join(get_args(DigitSource))}, got {source!r}")
    return load_mnist(split) if source == "mnist" else load_digits(split)


def stream(name: str, split: str, seed: int) -> int:
    """Return the key of the random numbers of one split of a generated data set."""
    return mix_seed(int.from_bytes(name.encode(), "big"), _STREAMS[split], seed)


def samples_per_digit(split: str, train: int, test: int, names: tuple[str, str]) -> int:
    """Return the number of samples of each digit: `train` in training, else `test`; errors use the option names."""
    for name, count in zip(names, (train, test), strict=True):
        if count < 1:
            raise ConfigError(f"{name}: expected at least 1, got {count}")
    return train if split.startswith("train") else test


class DigitGenerator:
    """Generates samples of one digit each: sample n shows digit n // repeats, with random numbers of its own."""

    def __init__(self, digits: ImageDataset, repeats: int, key: int) -> None:
        self.digits = digits
        self.repeats = repeats
        self.key = key

    def choose(self, numbers: Tensor, count: int) -> tuple[Tensor, Tensor, NDArray[np.float64]]:
        """Return digits [n, 1, 28, 28], labels [n], and `count` random numbers per sample, [n, count]."""
        chosen = numbers // self.repeats  # [n]
        return self.digits.images[chosen], self.digits.labels[chosen], uniforms(self.key, numbers.numpy(), count)


def load_transformed(
    name: str,
    kind: Callable[[ImageDataset, int, int], Generator],
    split: str,
    *,
    source: str,
    repeats: int,
    test_repeats: int,
    seed: int,
    style: str = "",
) -> GeneratedDataset:
    """Load one split of a data set with `repeats` samples of each digit in training and `test_repeats` elsewhere."""
    digits = load_source(source, split)
    count = samples_per_digit(split, repeats, test_repeats, ("repeats", "test_repeats"))
    origin = f"generated from {digits.name} ({digits.origin}){style}"
    generate = kind(digits, count, stream(name, split, seed))
    return GeneratedDataset(name, split, digits.class_names, origin, len(digits) * count, generate)


def other_class(labels: NDArray[np.int64], sizes: NDArray[np.int64], random: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return positions in a list sorted by class, uniform over all other classes; sizes [J] count the classes.

    >>> other_class(np.array([0, 1]), np.array([2, 3]), np.array([0.0, 0.9]))
    array([2, 1])
    """
    position = (random * (sizes.sum() - sizes[labels])).astype(np.int64)  # [n]
    start = np.cumsum(sizes) - sizes  # [J]
    # Positions at and after the own class are moved behind it.
    return np.where(position < start[labels], position, position + sizes[labels])


def to_integers(random: NDArray[np.float64], count: int | NDArray[np.int64]) -> Tensor:
    """Convert uniform numbers in [0, 1) to integers from 0 to count - 1."""
    return torch.from_numpy((random * count).astype(np.int64))


def place(images: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int) -> Tensor:
    """Place each image [B, C, h, w] on a black canvas [B, C, height, width], its corner at (tops, lefts), both [B].

    >>> place(torch.ones(1, 1, 1, 1, dtype=torch.uint8), torch.tensor([0]), torch.tensor([1]), 2, 2)[0, 0].tolist()
    [[0, 1], [0, 0]]
    """
    count, channels, inner_height, inner_width = images.shape
    free = (height - inner_height) * width + width - inner_width
    # With rows as long as those of the canvas, an image is one run of pixels, and a shift is another start.
    rows = images.new_zeros(count, channels, inner_height, width)
    rows[..., :inner_width] = images
    run = rows.flatten(2)[..., : height * width - free]  # [B, C, n]
    line = images.new_zeros(count, channels, height * width + free)
    line[..., free : free + run.shape[-1]] = run
    starts = line.unfold(2, height * width, 1)  # [B, C, free + 1, height * width]
    chosen = starts[torch.arange(count), :, free - (tops * width + lefts)]  # [B, C, height * width]
    return chosen.view(count, channels, height, width)
