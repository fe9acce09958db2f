"""Two digits of half the usual size side by side at a growing distance: identical ones, or ones of different classes.

The lectures on capsules: a capsule network cannot see two identical objects that are close together, like crowding in
human vision. `identical` pairs show one image twice. Digits are reduced to 14x14 and moved apart by 0 to 14 pixels on
28x28, around a centre that moves up and down; they are added and clipped at 255.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.data._generators import DigitSource, load_source, place, samples_per_digit, stream, to_integers
from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.generated import GeneratedDataset
from torchcaps.data.multimnist import PairGenerator, halved_digits
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError

SIDE, DIGIT = 28, 14
Pairs = Literal["mixed", "identical", "different"]


def load_crowded_digits(
    split: str,
    *,
    source: DigitSource = "mnist",
    pairs: Pairs = "mixed",
    repeats: int = 1000,
    test_repeats: int = 1,
    seed: int = 0,
) -> GeneratedDataset:
    """Load one split of the pairs; labels are [N, 2], the left digit first.

    `meta["distance"]` is the distance of the two centres in pixels, `meta["identical"]` is 1 for identical digits.

    Args:
        split: `train`, `val`, `test` or `train+val`, made of the digits of the same split of the source.
        source: `mnist`, or `digits` for those inside the package.
        pairs: `identical`, `different`, or `mixed` for half of each.
        repeats: Samples of each digit in training.
        test_repeats: Samples of each digit in the other splits.
        seed: Seed of pairs and distances.

    Returns:
        A data set of images uint8 [1, 28, 28]; batches have the two digits alone as `sources`.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a file of the source is missing or damaged.

    Example:
        >>> data = load_crowded_digits("test", source="digits", pairs="identical")
        >>> bool((data.labels[:, 0] == data.labels[:, 1]).all())
        True
    """
    if pairs not in get_args(Pairs):
        raise ConfigError(f"pairs: expected one of {', '.join(get_args(Pairs))}, got {pairs!r}")
    digits = halved_digits(load_source(source, split))
    count = samples_per_digit(split, repeats, test_repeats, ("repeats", "test_repeats"))
    share = {"mixed": 0.5, "identical": 1.0, "different": 0.0}[pairs]
    generate = CrowdedDigits(digits, count, stream("crowded_digits", split, seed), share)
    origin = f"generated from {digits.name} ({digits.origin})"
    return GeneratedDataset("crowded_digits", split, digits.class_names, origin, len(digits) * count, generate)


class CrowdedDigits(PairGenerator):
    """Generates two digits at a random distance; a share of the pairs is identical."""

    def __init__(self, digits: ImageDataset, repeats: int, key: int, share: float) -> None:
        super().__init__(digits, repeats, key, count=4)
        self.share = share

    def __call__(self, numbers: Tensor) -> Batch:
        """Generate the samples of these numbers, int64 [n]."""
        chosen, random = self.choose(numbers)  # [n, 2], [n, 3]
        same = torch.from_numpy(random[:, 0] < self.share)  # [n]
        chosen[:, 1] = chosen[:, 1].where(~same, chosen[:, 0])
        distance, top = to_integers(random[:, 1:], SIDE - DIGIT + 1).unbind(1)  # [n]
        left = (SIDE - DIGIT - distance) // 2  # [n]
        flat = self.digits.images[chosen.flatten()]  # [2 n, 1, 14, 14]
        lefts = torch.stack([left, left + distance], dim=1).flatten()  # [2 n]
        alone = place(flat, top.repeat_interleave(2), lefts, SIDE, SIDE).unflatten(0, (-1, 2))  # [n, 2, 1, 28, 28]
        first, second = alone.unbind(1)  # [n, 1, 28, 28]
        # Clipped at 255 within bytes: the excess is not added.
        images = first + second.minimum(255 - first)  # [n, 1, 28, 28]
        meta = {"distance": distance, "identical": same.to(torch.int64)}
        return Batch(images, self.digits.labels[chosen], alone, meta)


DATASETS.add(
    "crowded_digits",
    DatasetEntry(
        description="two small digits 0 to 14 pixels apart, identical or of different classes, 28x28 grey",
        source="a test of the lectures on capsules; generated from MNIST or from the embedded digits",
        licence="CC BY-SA 3.0",
        load=load_crowded_digits,
    ),
)
