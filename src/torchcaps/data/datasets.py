"""Data sets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchcaps._registry import Registry, check_options, nearest
from torchcaps.data._files import Source
from torchcaps.data.image_data import ImageData
from torchcaps.errors import ConfigError, UnknownNameError

SPLITS = ("train", "val", "test", "train+val")


@dataclass(frozen=True)
class Dataset:
    """A data set that can be asked for by name.

    `load(split, **options)` gives one part as ImageData; its keyword arguments are the options of the data set.
    `sources` are the forms in which it is distributed, the preferred one first; empty for what has no files of its own.
    """

    description: str
    source: str
    licence: str
    load: Callable[..., ImageData]
    splits: tuple[str, ...] = SPLITS
    sources: tuple[Source, ...] = ()

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options that `load` takes besides the split, by name."""
        parameters = dict(inspect.signature(self.load).parameters)
        del parameters["split"]
        return parameters


DATASETS: Registry[Dataset] = Registry("data set")


def list_data(pattern: str = "*") -> list[str]:
    """The names of the data sets that match a shell pattern.

    >>> list_data("digit*")
    ['digit_pairs', 'digits']
    """
    return DATASETS.names(pattern)


def load_data(name: str, split: str = "train", **options: Any) -> ImageData:
    """One part of a data set: `train`, `val` (cut from the training set), `test`, or `train+val`.

    >>> load_data("digits", "test").images.shape
    torch.Size([1000, 1, 28, 28])
    """
    dataset = DATASETS[name]
    if split not in dataset.splits:
        raise UnknownNameError(f"unknown split '{split}' of data set '{name}'{nearest(split, dataset.splits)}")
    check_options(options, dataset.options, f"data set '{name}'")
    for option, parameter in dataset.options.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"{option}: expected a value for data set '{name}', got none")
    return dataset.load(split, **options)
