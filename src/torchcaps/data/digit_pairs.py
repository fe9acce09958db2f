"""Two digits of different classes side by side, 28x56: Su Jianlin's test of networks that were shown single digits."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data._generated import Source, copies_in, load_source, stream
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.drawn import DrawnData
from torchcaps.data.image_data import Batch
from torchcaps.data.multimnist import Pairs


def load_digit_pairs(
    split: str, *, source: Source = "mnist", pairs: int = 1000, test_pairs: int = 1, seed: int = 0
) -> DrawnData:
    """One part of the pairs, labels [N, 2], the left digit first.

    Each digit stands on the left in `pairs` samples in training and in `test_pairs` of the other parts.
    """
    digits = load_source(source, split)
    copies = copies_in(split, pairs, test_pairs, ("pairs", "test_pairs"))
    drawing = Beside(digits, copies, stream("digit_pairs", split, seed))
    origin = f"drawn from {digits.name} ({digits.origin})"
    return DrawnData("digit_pairs", split, digits.class_names, origin, len(digits) * copies, drawing)


class Beside(Pairs):
    """Draws the samples: two digits, each in its half."""

    def __call__(self, numbers: Tensor) -> Batch:
        chosen, _ = self.choose(numbers)  # [n, 2]
        left, right = self.digits.images[chosen.flatten()].unflatten(0, (-1, 2)).unbind(1)  # [n, 1, 28, 28]
        empty = torch.zeros_like(left)
        alone = [torch.cat(halves, dim=-1) for halves in ((left, empty), (empty, right))]  # each [n, 1, 28, 56]
        sources = torch.stack(alone, dim=1)  # [n, 2, 1, 28, 56]
        return Batch(torch.cat([left, right], dim=-1), self.digits.labels[chosen], sources, {})


DATASETS.add(
    "digit_pairs",
    Dataset(
        description="two digits of different classes side by side, 28x56 grey: 1,000 pairs per training digit",
        source="Su Jianlin's test for capsules; drawn from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_digit_pairs,
    ),
)
