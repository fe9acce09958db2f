"""Who goes into which part: draws that stay the same on every machine and with every version."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import ConfigError


def draw_per_class(labels: Tensor, counts: Sequence[int], seed: int) -> Tensor:
    """The places of `counts[k]` labels of each class k, chosen at random by `seed`, in rising order.

    Python's `random.random()` is used because it alone promises the same numbers in all future versions.

    >>> draw_per_class(torch.tensor([0, 1, 0, 1, 0, 1]), [1, 2], seed=0)
    tensor([2, 3, 5])
    """
    draw = random.Random(seed).random
    order = torch.tensor([draw() for _ in labels], dtype=torch.float64).argsort()  # [N]
    shuffled = labels[order]  # [N]
    chosen = [order[shuffled == k][:count] for k, count in enumerate(counts)]
    return torch.cat(chosen).sort().values


def stratified_counts(labels: Tensor, size: int, num_classes: int) -> list[int]:
    """How many of each class make up `size` labels in the proportions of all; the largest remainders round up.

    >>> stratified_counts(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1]), 3, 2)
    [1, 2]
    """
    if not 0 <= size < len(labels):
        raise ConfigError(f"val_size: expected 0 to {len(labels) - 1} images, got {size}")
    shares = torch.bincount(labels, minlength=num_classes) * size  # [J]
    counts = shares // len(labels)  # [J]
    remainders = (shares % len(labels)).argsort(descending=True, stable=True)
    counts[remainders[: size - int(counts.sum())]] += 1
    return counts.tolist()


def choose_part(labels: Tensor, split: str, val_size: int, num_classes: int, seed: int) -> Tensor | slice:
    """Where `train`, `val` (`val_size` of them, in the proportions of the classes) or all of the labels [N] lie."""
    if split not in ("train", "val"):
        return slice(None)
    held_out = draw_per_class(labels, stratified_counts(labels, val_size, num_classes), seed)
    return held_out if split == "val" else others(held_out, len(labels))


def others(chosen: Tensor, total: int) -> Tensor:
    """The places from 0 to total - 1 that were not chosen, in rising order."""
    left = torch.ones(total, dtype=torch.bool)
    left[chosen] = False
    return left.nonzero().squeeze(1)
