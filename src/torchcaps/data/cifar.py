"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 colour photographs of 32x32 in 10 classes, or in 100 classes of 20 groups.

Krizhevsky 2009. Both distributed forms are read: binary batches and Python pickles.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from torchcaps.data._cifar_names import COARSE, FINE
from torchcaps.data._cifar_sources import CIFAR10, CIFAR100
from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import split_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError, DataError

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Labels = Literal["fine", "coarse"]

_SEED = 2009


def load_cifar10(split: str, *, val_size: int = 5000) -> ImageDataset:
    """Load one split of CIFAR-10.

    If only some of the five training batches are on this machine, those are loaded with a warning, and `origin` names
    the missing ones.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        val_size: Number of the 50,000 training images in the validation split.

    Returns:
        The images, uint8 [N, 3, 32, 32], and labels.

    Raises:
        DataError: If a file is missing or damaged.

    Example:
        >>> load_cifar10("test")[0]  # doctest: +SKIP
    """
    return _load("cifar10", CIFAR10, split, val_size, "labels", CLASS_NAMES)


def load_cifar100(split: str, *, labels: Labels = "fine", val_size: int = 5000) -> ImageDataset:
    """Load one split of CIFAR-100.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        labels: `fine` (100 classes) or `coarse` (20 classes).
        val_size: Number of the 50,000 training images in the validation split.

    Returns:
        The images, uint8 [N, 3, 32, 32], and labels.

    Raises:
        ConfigError: If the kind of labels does not exist.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_cifar100("test")[0]  # doctest: +SKIP
    """
    if labels not in ("fine", "coarse"):
        raise ConfigError(f"labels: expected fine or coarse, got {labels!r}")
    return _load("cifar100", CIFAR100, split, val_size, f"{labels}_labels", FINE if labels == "fine" else COARSE)


def _load(
    name: str, sources: Sequence[Source], split: str, val_size: int, which: str, class_names: tuple[str, ...]
) -> ImageDataset:
    def needed(source: Source) -> tuple[DataFile, ...]:
        return source.files[-1:] if split == "test" else source.files[:-1]

    source = max(sources, key=lambda source: sum(source.find(file) is not None for file in needed(source)))
    paths: dict[DataFile, Path | None] = {file: source.find(file) for file in needed(source)}
    if not any(paths.values()):
        paths = {file: obtain(file, source) for file in needed(source)}
    images, labels = [], []
    for file, path in paths.items():
        if path is not None:
            pixels, batch_labels = source.check(path, file)
            highest = int(batch_labels[which].max())
            if highest >= len(class_names):
                raise DataError(
                    f"{path}: expected labels of {len(class_names)} classes, got {highest}; download it again"
                )
            images.append(pixels)
            labels.append(batch_labels[which])
    origin = str(next(filter(None, paths.values())).parent) + _without(name, paths)
    numbers = torch.cat(labels)  # [N]
    indices = split_indices(numbers, split, val_size, len(class_names), _SEED)
    return InMemoryDataset(name, split, torch.cat(images)[indices], numbers[indices], class_names, origin)


def _without(name: str, paths: Mapping[DataFile, Path | None]) -> str:
    missing = [file.name for file, path in paths.items() if path is None]
    if not missing:
        return ""
    names = ", ".join(missing)
    warnings.warn(
        f"{name}: loaded without the missing files {names} (`torchcaps data download {name}` downloads them)",
        stacklevel=5,
    )
    return f" (without {names})"


DATASETS.add(
    "cifar10",
    DatasetEntry(
        description="colour photographs in ten classes: 45,000 train, 5,000 val, 10,000 test, 3x32x32",
        source="Alex Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        licence="not stated; made for research",
        load=load_cifar10,
        sources=CIFAR10,
    ),
)
DATASETS.add(
    "cifar100",
    DatasetEntry(
        description="colour photographs in 100 classes, or 20 (labels=coarse): 45,000 train, 5,000 val, 10,000 test",
        source="Alex Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        licence="not stated; made for research",
        load=load_cifar100,
        sources=CIFAR100,
    ),
)
