"""Two digits of different classes side by side, 28x56: Su Jianlin's test of networks trained on single digits."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data._generators import DigitSource, load_source, samples_per_digit, stream
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.multimnist import PairGenerator
from torchcaps.data.registry import DATASETS, DatasetEntry


def load_digit_pairs(
    split: str, *, source: DigitSource = "mnist", repeats: int = 1000, test_repeats: int = 1, seed: int = 0
) -> GeneratedDataset:
    """Load one split of the pairs; labels are [N, 2], the left digit first.

    Args:
        split: `train`, `val`, `test` or `train+val`, made of the digits of the same split of the source.
        source: `mnist`, or `digits` for those inside the package.
        repeats: Samples in training with each digit on the left.
        test_repeats: Samples in the other splits with each digit on the left.
        seed: Seed of the pairs.

    Returns:
        A data set of images uint8 [1, 28, 56].

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a file of the source is missing or damaged.

    Example:
        >>> data = load_digit_pairs("test", source="digits")
        >>> len(data) > 0
        True
    """
    digits = load_source(source, split)
    count = samples_per_digit(split, repeats, test_repeats, ("repeats", "test_repeats"))
    generate = AdjacentDigits(digits, count, stream("digit_pairs", split, seed))
    origin = f"generated from {digits.name} ({digits.origin})"
    return GeneratedDataset("digit_pairs", split, digits.class_names, origin, len(digits) * count, generate)


class AdjacentDigits(PairGenerator):
    """Generates two digits, each in one half of the image."""

    def __call__(self, numbers: Tensor) -> Batch:
        """Generate the samples of these numbers, int64 [n]."""
        chosen, _ = self.choose(numbers)  # [n, 2]
        left, right = self.digits.images[chosen.flatten()].unflatten(0, (-1, 2)).unbind(1)  # [n, 1, 28, 28]
        empty = torch.zeros_like(left)
        alone = [torch.cat(halves, dim=-1) for halves in ((left, empty), (empty, right))]  # each [n, 1, 28, 56]
        sources = torch.stack(alone, dim=1)  # [n, 2, 1, 28, 56]
        return Batch(torch.cat([left, right], dim=-1), self.digits.labels[chosen], sources, {})


DATASETS.add(
    "digit_pairs",
    DatasetEntry(
        description="two digits of different classes side by side, 28x56 grey: 1,000 pairs per training digit",
        source="Su Jianlin's test for capsules; generated from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_digit_pairs,
    ),
)
