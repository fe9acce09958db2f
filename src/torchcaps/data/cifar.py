"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 colour photographs of 32x32 in 10 classes, or in 100 classes of 20 kinds.

Krizhevsky 2009. Both forms that are distributed are read: binary (a byte or two for the label, then the red, green and
blue pixels, 3,072 bytes) and Python's (pickles; see _pickles.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from torchcaps.data._cifar_files import CIFAR10, CIFAR100
from torchcaps.data._cifar_names import COARSE, FINE
from torchcaps.data._files import DataFile, Source, obtain
from torchcaps.data._split import choose_part
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.errors import ConfigError, DataError

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

Labels = Literal["fine", "coarse"]

_SEED = 2009


def load_cifar10(split: str, *, val_size: int = 5000) -> ImageData:
    """One part of CIFAR-10; `val_size` of its 50,000 training images are the validation part.

    Where only some of the five training batches are at hand, those are taken, with a warning; `origin` says which not.
    """
    return _load("cifar10", CIFAR10, split, val_size, "labels", CLASS_NAMES)


def load_cifar100(split: str, *, labels: Labels = "fine", val_size: int = 5000) -> ImageData:
    """One part of CIFAR-100 with its 100 `fine` or 20 `coarse` classes; `val_size` images are the validation part."""
    if labels not in ("fine", "coarse"):
        raise ConfigError(f"labels: expected fine or coarse, got {labels!r}")
    return _load("cifar100", CIFAR100, split, val_size, f"{labels}_labels", FINE if labels == "fine" else COARSE)


def _load(
    name: str, sources: Sequence[Source], split: str, val_size: int, which: str, class_names: tuple[str, ...]
) -> ImageData:
    def wanted(source: Source) -> tuple[DataFile, ...]:
        return source.files[-1:] if split == "test" else source.files[:-1]

    source = max(sources, key=lambda source: sum(source.find(file) is not None for file in wanted(source)))
    paths: dict[DataFile, Path | None] = {file: source.find(file) for file in wanted(source)}
    if not any(paths.values()):
        paths = {file: obtain(file, source) for file in wanted(source)}
    images, labels = [], []
    for file, path in paths.items():
        if path is not None:
            pixels, found = source.check(path, file)
            if int(found[which].max()) >= len(class_names):
                raise DataError(f"{path}: expected labels of {len(class_names)} classes, got others; fetch it again")
            images.append(pixels)
            labels.append(found[which])
    origin = str(next(filter(None, paths.values())).parent) + _without(name, paths)
    numbers = torch.cat(labels)  # [N]
    places = choose_part(numbers, split, val_size, len(class_names), _SEED)
    return ImageData(name, split, torch.cat(images)[places], numbers[places], class_names, origin)


def _without(name: str, paths: Mapping[DataFile, Path | None]) -> str:
    missing = [file.name for file, path in paths.items() if path is None]
    if not missing:
        return ""
    words = f"without {', '.join(missing)}"
    warnings.warn(f"{name}: {words}, which are not at hand; `torchcaps data fetch {name}` gets them", stacklevel=5)
    return f" ({words})"


DATASETS.add(
    "cifar10",
    Dataset(
        description="colour photographs in ten classes: 45,000 train, 5,000 val, 10,000 test, 3x32x32",
        source="Alex Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        licence="not stated; made for research",
        load=load_cifar10,
        sources=CIFAR10,
    ),
)
DATASETS.add(
    "cifar100",
    Dataset(
        description="colour photographs in 100 classes, or 20 (labels=coarse): 45,000 train, 5,000 val, 10,000 test",
        source="Alex Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images",
        licence="not stated; made for research",
        load=load_cifar100,
        sources=CIFAR100,
    ),
)
