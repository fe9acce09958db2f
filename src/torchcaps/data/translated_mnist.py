"""Digits at random positions on a black canvas of 40x40 (Sabour, Frosst, Hinton 2017, section 5.2).

Networks are trained on them and tested on affNIST.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.data._generators import DigitGenerator, DigitSource, load_transformed, place, to_integers
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.registry import DATASETS, DatasetEntry

SIDE = 40


def load_translated_mnist(
    split: str, *, source: DigitSource = "mnist", repeats: int = 1000, test_repeats: int = 1, seed: int = 0
) -> GeneratedDataset:
    """Load one split of the translated digits.

    `meta` has the corner of the 28x28 box of each digit, `top` and `left`, from 0 to 12.

    Args:
        split: `train`, `val`, `test` or `train+val`, made of the digits of the same split of the source.
        source: `mnist`, or `digits` for those inside the package.
        repeats: Samples of each digit in training.
        test_repeats: Samples of each digit in the other splits.
        seed: Seed of the positions.

    Returns:
        A data set of images uint8 [1, 40, 40].

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a file of the source is missing or damaged.

    Example:
        >>> data = load_translated_mnist("test", source="digits")
        >>> len(data) > 0
        True
    """
    options = {"source": source, "repeats": repeats, "test_repeats": test_repeats, "seed": seed}
    return load_transformed("translated_mnist", TranslatedDigits, split, **options)


class TranslatedDigits(DigitGenerator):
    """Places each digit at a random position."""

    def __call__(self, numbers: Tensor) -> Batch:
        """Generate the samples of these numbers, int64 [n]."""
        images, labels, random = self.choose(numbers, 2)  # [n, 1, 28, 28], [n], [n, 2]
        tops, lefts = (to_integers(random[:, k], SIDE - images.shape[k - 2] + 1) for k in range(2))  # [n]
        return Batch(place(images, tops, lefts, SIDE, SIDE), labels, None, {"top": tops, "left": lefts})


DATASETS.add(
    "translated_mnist",
    DatasetEntry(
        description="digits at random positions on 40x40 black pixels: 1,000 positions per training digit",
        source="Sara Sabour, Nicholas Frosst, Geoffrey Hinton 2017; generated from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_translated_mnist,
    ),
)
