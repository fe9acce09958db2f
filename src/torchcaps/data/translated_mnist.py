"""Digits at random places on a black canvas of 40x40: what networks are trained on before they meet affNIST.

Sabour, Frosst, Hinton 2017, section 5.2.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.data._draws import uniforms
from torchcaps.data._generated import Source, copies_in, load_source, place, stream, whole
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch, ImageData

SIDE = 40


def load_translated_mnist(
    split: str, *, source: Source = "mnist", copies: int = 1000, test_copies: int = 1, seed: int = 0
) -> DrawnData:
    """One part of the translated digits; each gives `copies` samples in training and `test_copies` elsewhere.

    `meta` holds the corner of the digit's box of 28x28, `top` and `left`, from 0 to 12.
    """
    digits = load_source(source, split)
    count = copies_in(split, copies, test_copies, ("copies", "test_copies"))
    drawing = Placed(digits, count, stream("translated_mnist", split, seed))
    origin = f"drawn from {digits.name} ({digits.origin})"
    return DrawnData("translated_mnist", split, digits.class_names, origin, len(digits) * count, drawing)


class Placed:
    """Draws the samples: digit n // copies, wherever it fits."""

    def __init__(self, digits: ImageData, copies: int, key: int) -> None:
        self.digits = digits
        self.copies = copies
        self.key = key

    def __call__(self, numbers: Tensor) -> Batch:
        chosen = numbers // self.copies  # [n]
        images = self.digits.images[chosen]  # [n, 1, 28, 28]
        random = uniforms(self.key, numbers.numpy(), 2)  # [n, 2]
        tops, lefts = (whole(random[:, k], SIDE - images.shape[k - 2] + 1) for k in range(2))  # [n]
        placed = place(images, tops, lefts, SIDE, SIDE)  # [n, 1, 40, 40]
        return Batch(placed, self.digits.labels[chosen], None, {"top": tops, "left": lefts})


DATASETS.add(
    "translated_mnist",
    Dataset(
        description="digits at random places on 40x40 black pixels: 1,000 places per training digit",
        source="Sara Sabour, Nicholas Frosst, Geoffrey Hinton 2017; drawn from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_translated_mnist,
    ),
)
