"""MultiMNIST: two digits of different classes, one over the other (Sabour, Frosst, Hinton 2017, section 6.1).

Each digit is padded to 36x36 and moved by up to 4 pixels in each direction on its own; the two are added and clipped
at 255. Their boxes of 28x28 overlap by 80 % on average. Every training digit gives 1000 pairs: sample n is a pair of
digit n // 1000 with one drawn from the other classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._draws import uniforms
from torchcaps.data._generated import Source, copies_in, load_source, other_class, place, stream, whole
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch, ImageData

SIDE, SHIFT = 36, 4


def load_multimnist(
    split: str, *, source: Source = "mnist", pairs: int = 1000, test_pairs: int = 1, seed: int = 0
) -> DrawnData:
    """One part of MultiMNIST, labels [N, 2].

    Each digit gives `pairs` samples in training and `test_pairs` in the validation and test parts. A part is made of
    digits of the same part of its source. `meta["overlap"]` is the share of a digit's box that the other's covers.
    """
    digits = load_source(source, split)
    copies = copies_in(split, pairs, test_pairs, ("pairs", "test_pairs"))
    drawing = Overlaid(digits, copies, stream("multimnist", split, seed))
    origin = f"drawn from {digits.name} ({digits.origin})"
    return DrawnData("multimnist", split, digits.class_names, origin, len(digits) * copies, drawing)


class Pairs:
    """Chooses two digits of different classes for each sample number: the first by turns, the second at random."""

    def __init__(self, digits: ImageData, copies: int, key: int, draws: int = 1) -> None:
        self.digits = digits
        self.copies = copies
        self.key = key
        self.draws = draws
        self.labels = digits.labels.numpy()  # [D]
        self.sizes = np.bincount(self.labels, minlength=digits.num_classes)  # [J]
        self.by_class = np.argsort(self.labels, kind="stable")  # [D]

    def choose(self, numbers: Tensor) -> tuple[Tensor, np.ndarray]:
        """The places of both digits [n, 2], and `draws` - 1 more random numbers, [n, draws - 1]."""
        first = numbers.numpy() // self.copies  # [n]
        random = uniforms(self.key, numbers.numpy(), self.draws)  # [n, draws]
        second = self.by_class[other_class(self.labels[first], self.sizes, random[:, 0])]  # [n]
        return torch.from_numpy(np.stack([first, second], axis=1)), random[:, 1:]


class Overlaid(Pairs):
    """Draws the samples of MultiMNIST."""

    def __init__(self, digits: ImageData, copies: int, key: int) -> None:
        super().__init__(digits, copies, key, draws=5)

    def __call__(self, numbers: Tensor) -> Batch:
        chosen, random = self.choose(numbers)  # [n, 2], [n, 4]
        # A corner anywhere from 0 to 8 is the middle, moved by -4 to 4.
        corners = whole(random, 2 * SHIFT + 1).view(-1, 2, 2)  # [n, 2, 2], top and left of each
        flat = self.digits.images[chosen.flatten()]  # [2 n, 1, 28, 28]
        tops, lefts = corners.flatten(0, 1).unbind(1)  # [2 n]
        sources = place(flat, tops, lefts, SIDE, SIDE).unflatten(0, (-1, 2))  # [n, 2, 1, 36, 36]
        first, second = sources.unbind(1)  # [n, 1, 36, 36]
        # Clipped at 255 without leaving bytes: what does not fit is not added.
        images = first + second.minimum(255 - first)  # [n, 1, 36, 36]
        height, width = flat.shape[-2:]
        apart = (corners[:, 0] - corners[:, 1]).abs()  # [n, 2]
        shared = (height - apart[:, 0]).clamp(min=0) * (width - apart[:, 1]).clamp(min=0)  # [n]
        return Batch(images, self.digits.labels[chosen], sources, {"overlap": shared / (height * width)})


DATASETS.add(
    "multimnist",
    Dataset(
        description="two digits of different classes on top of each other, 36x36 grey: 1,000 pairs per training digit",
        source="Sara Sabour, Nicholas Frosst, Geoffrey Hinton 2017; drawn from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_multimnist,
    ),
)
