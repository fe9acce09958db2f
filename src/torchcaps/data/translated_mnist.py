"""Digits at random places on a black canvas of 40x40: what networks are trained on before they meet affNIST.

Sabour, Frosst, Hinton 2017, section 5.2.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.data._generated import Copies, Source, load_copies, place, whole
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch

SIDE = 40


def load_translated_mnist(
    split: str, *, source: Source = "mnist", copies: int = 1000, test_copies: int = 1, seed: int = 0
) -> DrawnData:
    """One part of the translated digits; each gives `copies` samples in training and `test_copies` elsewhere.

    `meta` holds the corner of the digit's box of 28x28, `top` and `left`, from 0 to 12.
    """
    options = {"source": source, "copies": copies, "test_copies": test_copies, "seed": seed}
    return load_copies("translated_mnist", Placed, split, **options)


class Placed(Copies):
    """Puts each digit wherever it fits."""

    def __call__(self, numbers: Tensor) -> Batch:
        images, labels, random = self.drawn(numbers, 2)  # [n, 1, 28, 28], [n], [n, 2]
        tops, lefts = (whole(random[:, k], SIDE - images.shape[k - 2] + 1) for k in range(2))  # [n]
        return Batch(place(images, tops, lefts, SIDE, SIDE), labels, None, {"top": tops, "left": lefts})


DATASETS.add(
    "translated_mnist",
    Dataset(
        description="digits at random places on 40x40 black pixels: 1,000 places per training digit",
        source="Sara Sabour, Nicholas Frosst, Geoffrey Hinton 2017; drawn from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_translated_mnist,
    ),
)
