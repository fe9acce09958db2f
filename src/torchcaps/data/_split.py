"""Validation splits: random draws that stay the same on every machine and with every version."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.data.dataset import ImageDataset
from torchcaps.errors import ConfigError


def sample_per_class(labels: Tensor, counts: Sequence[int], seed: int) -> Tensor:
    """Return the indices of `counts[k]` random labels of each class k, in ascending order.

    Python's `random.random()` is the one generator that promises the same numbers in all future versions.

    >>> sample_per_class(torch.tensor([0, 1, 0, 1, 0, 1]), [1, 2], seed=0)
    tensor([2, 3, 5])
    """
    uniform = random.Random(seed).random
    order = torch.tensor([uniform() for _ in labels], dtype=torch.float64).argsort()  # [N]
    shuffled = labels[order]  # [N]
    chosen = [order[shuffled == k][:count] for k, count in enumerate(counts)]
    return torch.cat(chosen).sort().values


def stratified_counts(labels: Tensor, size: int, num_classes: int) -> list[int]:
    """Return how many labels of each class make up `size` labels in the proportions of all.

    The largest remainders are rounded up.

    >>> stratified_counts(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1]), 3, 2)
    [1, 2]
    """
    if not 0 <= size < len(labels):
        raise ConfigError(f"val_size: expected 0 to {len(labels) - 1}, got {size}")
    shares = torch.bincount(labels, minlength=num_classes) * size  # [J]
    counts = shares // len(labels)  # [J]
    remainders = (shares % len(labels)).argsort(descending=True, stable=True)
    counts[remainders[: size - int(counts.sum())]] += 1
    return counts.tolist()


def held_out_indices(labels: Tensor, val_size: int, num_classes: int, seed: int) -> Tensor:
    """Return the indices of `val_size` labels, stratified by class, in ascending order."""
    return sample_per_class(labels, stratified_counts(labels, val_size, num_classes), seed)


def split_indices(labels: Tensor, split: str, val_size: int, num_classes: int, seed: int) -> Tensor | slice:
    """Return the indices of one split of the labels [N]: `train`, `val` (stratified by class), or else all."""
    if split not in ("train", "val"):
        # A slice: all images are used without a copy.
        return slice(None)
    held_out = held_out_indices(labels, val_size, num_classes, seed)
    return held_out if split == "val" else complement(held_out, len(labels))


def complement(chosen: Tensor, total: int) -> Tensor:
    """Return the indices from 0 to total - 1 that are not chosen, in ascending order."""
    rest = torch.ones(total, dtype=torch.bool)
    rest[chosen] = False
    return rest.nonzero().squeeze(1)


def choose_per_class(data: ImageDataset, count: int, seed: int) -> ImageDataset:
    """Return a random choice of `count` images of each class.

    Args:
        data: Images with one label.
        count: Number of images of each class.
        seed: Seed of the choice.

    Returns:
        The chosen images, in their order.

    Raises:
        ConfigError: If a class has fewer images.

    Example:
        >>> from torchcaps.data import load_data
        >>> choose_per_class(load_data("digits", "val"), 2, seed=0).labels.bincount().tolist()
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    labels = data.labels
    fewest = int(torch.bincount(labels, minlength=data.num_classes).min())
    if fewest < count:
        raise ConfigError(f"per_class: expected at most {fewest} images of each class of '{data.name}', got {count}")
    return data.subset(sample_per_class(labels, [count] * data.num_classes, seed))
