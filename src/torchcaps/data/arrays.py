"""Signals, images and volumes in one file: `.ts` of the UCR and UEA archives, `.npz` and `.npy` of numpy.

BasicMotions_TRAIN.ts                        with BasicMotions_TEST.ts beside it, or without
breastmnist.npz                              train_images, train_labels, val_images, ..., test_labels (MedMNIST)
mine.npz                                     x_train, y_train, x_test, y_test, or x and y (also images and labels)
mine.npy                                     the samples, with mine_labels.npy beside it
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._split import complement, held_out_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.array_files import read_arrays, read_npy
from torchcaps.data.readers.ts_files import MAX_CLASSES, Signals, read_ts
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError, DataError, ShapeError

SUFFIXES = (".ts", ".npz", ".npy")
# Resampling may make signals this many values in all, or this number of times those of the file.
MAX_VALUES, MAX_GROWTH = 64_000_000, 4
_SEED = 0
# Names of samples and labels in an npz file without splits; with splits they have a prefix or suffix.
_SAMPLES, _LABELS = ("images", "x", "data", "samples", "signals"), ("labels", "y", "targets", "label")
_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


class ArrayFile(NamedTuple):
    """The content of a file with arrays.

    Attributes:
        splits: Samples [N, C, T], [N, C, H, W] or [N, C, D, H, W] and labels [N] by split; `train` is there.
        class_names: Name of each class.
        rank: 1 for signals, 2 for images, 3 for volumes.
        lengths: Shortest and longest signal before resampling; None for images and volumes.
        held_out: The splits that the file does not have: they are held out of `train`.
    """

    splits: dict[str, tuple[np.ndarray, Tensor]]
    class_names: tuple[str, ...]
    rank: int
    lengths: tuple[int, int] | None
    held_out: tuple[str, ...]


def scan_arrays(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    rank: int | None = None,
    length: int | None = None,
    val_fraction: float = 0.2,
    test_fraction: float = 0.2,
) -> ArrayFile:
    """Read all splits of a file; see `load_arrays` for the arguments.

    Args:
        path: The file.
        labels: File of the labels of an `.npy` file.
        rank: 1, 2 or 3.
        length: Length of all signals.
        val_fraction: Fraction of the training samples in the validation split if the file has none.
        test_fraction: The same for the test split.

    Returns:
        The samples, labels and classes.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If the file is missing, damaged, or has too few samples.

    Example:
        >>> scan_arrays("GunPoint_TRAIN.ts").rank  # doctest: +SKIP
        1
    """
    path = Path(path).expanduser()
    for name, value in (("val_fraction", val_fraction), ("test_fraction", test_fraction)):
        if isinstance(value, bool) or not 0 < value < 1:
            raise ConfigError(f"{name}: expected a number between 0 and 1, got {value!r}")
    read = read_splits(path, labels=labels, rank=rank, length=length)
    found = read.splits
    held_out = tuple(split for split in ("val", "test") if split not in found)
    for split in reversed(held_out):
        fraction = test_fraction if split == "test" else val_fraction
        found = _hold_out(path, found, split, fraction, read.class_names)
    _check_classes(path, found["train"][1], read.class_names)
    return read._replace(splits=found, held_out=held_out)


def read_splits(
    path: str | Path, *, labels: str | Path | None = None, rank: int | None = None, length: int | None = None
) -> ArrayFile:
    """Read the splits that a file has, and hold none out; see `load_arrays` for the arguments.

    Args:
        path: The file.
        labels: File of the labels of an `.npy` file.
        rank: 1, 2 or 3.
        length: Length of all signals.

    Returns:
        The samples in the order of the file, labels and classes.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If the file is missing or damaged.

    Example:
        >>> list(read_splits("GunPoint_TRAIN.ts").splits)  # doctest: +SKIP
        ['train', 'test']
    """
    path = Path(path).expanduser()
    if rank not in (None, 1, 2, 3):
        raise ConfigError(f"rank: expected 1 for signals, 2 for images or 3 for volumes, got {rank!r}")
    if length is not None and (isinstance(length, bool) or length < 1):
        raise ConfigError(f"length: expected a number of values of at least 1, got {length!r}")
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"path: expected a file ending in {', '.join(SUFFIXES)}, got '{path}'")
    if not path.is_file():
        raise DataError(f"{path}: expected a file, but there is none")
    lengths = None
    if path.suffix == ".ts":
        if rank not in (None, 1):
            raise ConfigError(f"rank: expected 1 for the signals of a .ts file, got {rank}")
        found, class_names, lengths = _ts_splits(path, length)
        rank = 1
    else:
        raw = _npz_splits(path) if path.suffix == ".npz" else _npy_splits(path, labels)
        rank = _guess_rank(raw["train"][0]) if rank is None else rank
        found, class_names = _typed(path, raw, rank)
        if rank == 1:
            lengths = (found["train"][0].shape[2],) * 2
            if length is not None:
                for values, _ in found.values():
                    _check_growth(path, values.size, values.size // lengths[0] * length, length)
                found = {split: (_resampled(values, length), at) for split, (values, at) in found.items()}
    return ArrayFile(found, class_names, rank, lengths, ())


def load_arrays(
    split: str,
    path: str | Path,
    *,
    labels: str | Path | None = None,
    rank: int | None = None,
    length: int | None = None,
    val_fraction: float = 0.2,
    test_fraction: float = 0.2,
) -> ImageDataset:
    """Load one split of a file with signals, images or volumes.

    The channels of signals are standardised with mean and deviation of the training split. Signals of different lengths
    are resampled to the longest one, or to `length`, by linear interpolation.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        path: A `.ts`, `.npz` or `.npy` file. Of `NAME_TRAIN.ts` the test split is `NAME_TEST.ts`, if it is there.
        labels: File of the labels of an `.npy` file; the default is `NAME_labels.npy` beside `NAME.npy`.
        rank: 1 for signals, 2 for images, 3 for volumes. By default arrays [N, T] and [N, C, T] of floats are signals,
            bytes [N, H, W] images, [N, H, W, 3] and [N, 3, H, W] colour images, and larger ones volumes.
        length: Length of all signals.
        val_fraction: Fraction of the training samples in the validation split if the file has none.
        test_fraction: The same for the test split.

    Returns:
        The data set.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If the file is missing, damaged, has values that are not finite, or too few samples.

    Example:
        >>> load_arrays("train", "GunPoint_TRAIN.ts").image_shape  # doctest: +SKIP
        (1, 150)
    """
    path = Path(path).expanduser()
    found = scan_arrays(
        path, labels=labels, rank=rank, length=length, val_fraction=val_fraction, test_fraction=test_fraction
    )
    parts = [found.splits[each] for each in split.split("+")]
    values = np.concatenate([part for part, _ in parts]) if len(parts) > 1 else parts[0][0]
    labels_of_parts = torch.cat([at for _, at in parts])
    return dataset_of_arrays(path, split, values, labels_of_parts, found, found.splits["train"][0])


def dataset_of_arrays(
    path: Path, split: str, values: np.ndarray, labels: Tensor, file: ArrayFile, train: np.ndarray
) -> InMemoryDataset:
    """Return samples of a file as a data set; signals are standardised with mean and deviation of training samples.

    Args:
        path: The file.
        split: Name of the split.
        values: The samples.
        labels: Their labels.
        file: What was read from the file.
        train: The training samples.

    Returns:
        The data set.
    """
    if file.rank == 1:
        mean, deviation = (statistic(train, axis=(0, 2), keepdims=True) for statistic in (np.mean, np.std))
        values = ((values - mean) / np.maximum(deviation, 1e-6)).astype(np.float32)  # [N, C, T]
    images = torch.from_numpy(np.ascontiguousarray(values))
    name = re.sub(r"_TRAIN$", "", path.stem)
    return InMemoryDataset(name, split, images, labels, file.class_names, str(path))


Splits = dict[str, tuple[np.ndarray, Tensor]]


def _ts_splits(path: Path, length: int | None) -> tuple[Splits, tuple[str, ...], tuple[int, int]]:
    files = {"train": path}
    other = path.with_name(path.name.replace("_TRAIN.ts", "_TEST.ts"))
    if other != path and other.is_file():
        files["test"] = other
    read = {split: read_ts(file) for split, file in files.items()}
    first = read["train"]
    for split, signals in read.items():
        if (signals.class_names, len(signals.series[0])) != (first.class_names, len(first.series[0])):
            raise DataError(
                f"{files[split]}: expected {len(first.series[0])} channels and the classes "
                f"{', '.join(first.class_names)} of {path.name}, got {len(signals.series[0])} and "
                f"{', '.join(signals.class_names)}"
            )
    sizes = [series.shape[1] for signals in read.values() for series in signals.series]
    longest = length or max(series.shape[1] for series in first.series)
    splits = {
        split: (_stacked(files[split], signals, longest), torch.tensor(signals.labels, dtype=torch.int64))
        for split, signals in read.items()
    }
    return splits, first.class_names, (min(sizes), max(sizes))


def _stacked(path: Path, signals: Signals, length: int) -> np.ndarray:
    """Return all signals with one length, [N, C, T]."""
    channels = len(signals.series[0])
    _check_growth(path, sum(series.size for series in signals.series), len(signals.series) * channels * length, length)
    values = np.empty((len(signals.series), channels, length), np.float32)  # [N, C, T]
    for number, series in enumerate(signals.series):
        values[number] = _resampled(series[None], length)[0]
    return values


def _check_growth(path: Path, before: int, after: int, length: int) -> None:
    limit = max(MAX_VALUES, MAX_GROWTH * before)
    if after > limit:
        raise DataError(
            f"{path}: expected at most {limit:,} values after all signals are resampled to {length:,}, got {after:,} "
            "(give a smaller length)"
        )


def _resampled(values: np.ndarray, length: int) -> np.ndarray:
    """Return signals [N, C, T] with `length` values by linear interpolation, first and last value kept."""
    if values.shape[2] == length:
        return values.astype(np.float32)
    if values.shape[2] == 1:
        return np.repeat(values, length, axis=2).astype(np.float32)
    signals = torch.from_numpy(np.ascontiguousarray(values, np.float32))
    return torch.nn.functional.interpolate(signals, length, mode="linear", align_corners=True).numpy()


def _npz_splits(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return samples and labels by split, found by the names of the arrays."""
    arrays = read_arrays(path)
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        words = re.split(r"[_\W]+", name.lower())
        splits = [_SPLITS[word] for word in words if word in _SPLITS]
        kinds = ["labels" if word in _LABELS else "samples" for word in words if word in (*_LABELS, *_SAMPLES)]
        if len(splits) <= 1 and len(kinds) == 1:
            found.setdefault(splits[0] if splits else "train", {})[kinds[0]] = array
    pairs = {split: (each["samples"], each["labels"]) for split, each in found.items() if len(each) == 2}
    if "train" not in pairs:
        raise DataError(
            f"{path}: expected arrays such as train_images and train_labels, x_train and y_train, or x and y, got "
            f"{', '.join(list(arrays)[:20])}"
        )
    return pairs


def _npy_splits(path: Path, labels: str | Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    file = path.with_name(f"{path.stem}_labels.npy") if labels is None else Path(labels).expanduser()
    if not file.is_file():
        raise DataError(f"labels: expected a file of labels for {path.name}, but there is no '{file}'")
    return {"train": (read_npy(path), read_npy(file))}


def _guess_rank(samples: np.ndarray) -> int:
    """Return whether an array holds signals, images or volumes, by its axes and type."""
    if samples.ndim == 2 or (samples.ndim == 3 and samples.dtype.kind == "f"):
        return 1
    if samples.ndim == 3 or (samples.ndim == 4 and (samples.shape[3] in (1, 3) or samples.shape[1] in (1, 3))):
        return 2
    return 3


def _typed(path: Path, raw: Mapping[str, tuple[np.ndarray, np.ndarray]], rank: int) -> tuple[Splits, tuple[str, ...]]:
    """Return samples with channels first and labels as class indices, and the names of the classes."""
    values = np.unique(np.concatenate([np.ravel(labels) for _, labels in raw.values()]))
    if values.dtype.kind not in "iub":
        raise DataError(f"{path}: expected labels that are integers, got {values.dtype}")
    if len(values) > MAX_CLASSES:
        raise DataError(f"{path}: expected at most {MAX_CLASSES:,} classes, got {len(values):,} different labels")
    splits: Splits = {}
    for split, (samples, labels) in sorted(raw.items(), key=lambda item: item[0] != "train"):
        if samples.ndim == rank + 2 and samples.shape[-1] in (1, 3) and samples.shape[1] not in (1, 3):
            samples = np.moveaxis(samples, -1, 1)
        indices = np.searchsorted(values, np.ravel(labels))
        try:
            data = InMemoryDataset.from_arrays(samples, indices, class_names=[str(each) for each in values], rank=rank)
        except (DataError, ShapeError) as error:
            raise DataError(f"{path}, {split}: {error}") from None
        splits[split] = (data.images.numpy(), data.labels)
        shape, expected = data.image_shape, splits["train"][0].shape[1:]
        if shape != expected:
            raise DataError(f"{path}, {split}: expected samples of {expected} as in train, got {shape}")
    return splits, tuple(str(each) for each in values)


def _hold_out(path: Path, found: Splits, split: str, fraction: float, class_names: Sequence[str]) -> Splits:
    """Return the splits with one more, held out of the training samples, stratified by class."""
    values, labels = found["train"]
    size = max(1, round(fraction * len(labels)))
    if size >= len(labels):
        raise DataError(f"{path}: expected samples for training and for {split}, got {len(labels)}")
    held_out = held_out_indices(labels, size, len(class_names), _SEED)
    rest = complement(held_out, len(labels))
    cut = {name: (values[at.numpy()], labels[at]) for name, at in (("train", rest), (split, held_out))}
    return {**found, **cut}


def _check_classes(path: Path, labels: Tensor, class_names: Sequence[str]) -> None:
    counts = torch.bincount(labels, minlength=len(class_names)).tolist()
    if len(class_names) < 2:
        raise DataError(f"{path}: expected at least two classes, got {len(class_names)}")
    empty = [name for name, count in zip(class_names, counts, strict=True) if not count]
    if empty:
        raise DataError(
            f"{path}: expected training samples of every class, but '{empty[0]}' has none "
            f"({len(labels)} samples of {len(class_names)} classes)"
        )


DATASETS.add(
    "arrays",
    DatasetEntry(
        description="your own signals, images or volumes in one file: .ts, .npz, .npy",
        source="the file given as path",
        licence="yours",
        load=load_arrays,
    ),
)
