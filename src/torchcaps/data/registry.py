"""The registry of data sets: load one by name, or register images of your own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchcaps._registry import Registry, check_options, nearest
from torchcaps.data._sources import Source
from torchcaps.data._split import complement, held_out_indices
from torchcaps.data.dataset import ImageDataset, Transform
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.errors import ConfigError, DataError, UnknownNameError

SPLITS = ("train", "val", "test", "train+val")
# Seed of the validation split of registered images.
_SEED = 0


@dataclass(frozen=True)
class DatasetEntry:
    """A registered data set.

    Attributes:
        description: One line for `torchcaps data`.
        source: Authors, year and title.
        licence: Licence of the images.
        load: `load(split, **options)` loads one split; its keyword arguments are the options of the data set.
        splits: Names of the splits.
        sources: Distributed forms of its files, the preferred one first; empty for a data set without files.
    """

    description: str
    source: str
    licence: str
    load: Callable[..., ImageDataset]
    splits: tuple[str, ...] = SPLITS
    sources: tuple[Source, ...] = ()

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Options of `load` besides the split, by name."""
        parameters = dict(inspect.signature(self.load).parameters)
        del parameters["split"]
        return parameters


DATASETS: Registry[DatasetEntry] = Registry("data set")


def list_data(pattern: str = "*") -> list[str]:
    """List the names of the data sets that match a shell pattern.

    Args:
        pattern: Shell pattern with `*` and `?`.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_data("digit*")
        ['digit_pairs', 'digits']
    """
    return DATASETS.names(pattern)


def load_data(name: str, split: str = "train", *, transform: Transform | None = None, **options: Any) -> ImageDataset:
    """Load one split of a data set, a map-style `torch.utils.data.Dataset`.

    Files that are not on this machine are downloaded and verified.

    Args:
        name: Name of the data set; `list_data` lists them.
        split: `train`, `val` (held out of the training images), `test` or `train+val`.
        transform: Applied to each float image [C, H, W] of `data[i]`. `BatchLoader` augments by `Augment` instead.
        **options: Options of the data set, such as `val_size`.

    Returns:
        The data set: `data[i]` is a float32 image [C, H, W] in [0, 1] and an int label.

    Raises:
        UnknownNameError: If the data set or the split does not exist.
        ConfigError: If an option is unknown, missing or out of range.
        DataError: If a file is missing or damaged.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> images, labels = next(iter(DataLoader(load_data("digits", "test"), batch_size=32)))
        >>> images.shape, labels.shape
        (torch.Size([32, 1, 28, 28]), torch.Size([32]))
    """
    entry = DATASETS[name]
    if split not in entry.splits:
        raise UnknownNameError(f"unknown split '{split}' of data set '{name}'{nearest(split, entry.splits)}")
    check_options(options, entry.options, f"data set '{name}'")
    for option, parameter in entry.options.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"{option}: expected a value for data set '{name}', but it is not set ({option}=VALUE)")
    data = entry.load(split, **options)
    return data if transform is None else data.with_transform(transform)


def register_data(name: str, train: ImageDataset, test: ImageDataset, *, val: ImageDataset | None = None) -> None:
    """Register images under a name that `load_data` and recipes accept, until the process ends.

    Args:
        name: A new name.
        train: Training images.
        test: Test images, of the same shape and classes.
        val: Validation images; the default holds out a tenth of the training images, stratified by class.

    Raises:
        ConfigError: If the name is already registered.
        DataError: If shapes or class names differ.

    Example:
        >>> import numpy as np
        >>> images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2
        >>> data = InMemoryDataset.from_arrays(images, labels)
        >>> register_data("stripes", data, data)
        >>> len(load_data("stripes", "train")), len(load_data("stripes", "val"))
        (36, 4)
    """
    splits = {"train": train, "test": test} | ({} if val is None else {"val": val})
    for split, data in splits.items():
        if (data.class_names, data.image_shape) != (train.class_names, train.image_shape):
            raise DataError(
                f"{split}: expected images {train.image_shape} of the {train.num_classes} classes of train, got "
                f"{data.image_shape} of {data.num_classes} classes {data.class_names}"
            )

    def load(split: str) -> ImageDataset:
        if split == "test" or (split in splits and val is not None):
            chosen = splits[split]
        elif split == "train+val":
            chosen = train if val is None else _concatenate(train, val)
        else:
            held_out = held_out_indices(train.labels, len(train) // 10, train.num_classes, _SEED)
            chosen = train.subset(held_out if split == "val" else complement(held_out, len(train)))
        return chosen.renamed(name, split)

    DATASETS.add(name, DatasetEntry("images registered by this process", train.origin, "yours", load))


def _concatenate(first: ImageDataset, second: ImageDataset) -> InMemoryDataset:
    """Join the images of two data sets in memory, with the meta values that both have."""
    meta = {key: torch.cat([values, second.meta[key]]) for key, values in first.meta.items() if key in second.meta}
    images, labels = torch.cat([first.images, second.images]), torch.cat([first.labels, second.labels])
    return InMemoryDataset(first.name, first.split, images, labels, first.class_names, first.origin, meta)
