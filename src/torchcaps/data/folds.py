"""Cross-validation of any data set: folds that are stratified by class, and grouped, by patient say.

Fold k of n is the test split of a run. A tenth of the other images, stratified and grouped in the same way, is its
validation split. The folds are those of the training and validation images. A folder of images without a folder
`test`, and a file of arrays without test samples, give all of theirs; test images that a data set keeps apart are not
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchcaps._registry import check_options
from torchcaps.data._folds import assign_folds, smallest_class
from torchcaps.data._groups import groups_of_files, groups_of_rows
from torchcaps.data.arrays import dataset_of_arrays, read_splits
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.folder import MEMORY_MB, dataset_of_files, report_bad
from torchcaps.data.folder_files import scan_folder
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry, load_data
from torchcaps.errors import ConfigError, DataError

# A tenth of the images that are not tested validate.
VAL_FOLDS = 10

__all__ = ["assign_folds", "load_folds"]


class _Pool(NamedTuple):
    """The images of all folds: labels [N], groups, names of the classes, and the function that loads some of them.

    The function takes the indices of the images, the name of the split, and the indices of all that are not tested.
    """

    labels: Tensor
    groups: Sequence[object] | None
    class_names: Sequence[str]
    load: Callable[[Tensor, str, Tensor], ImageDataset]


def load_folds(
    split: str,
    source: str,
    *,
    fold: int,
    folds: int,
    groups: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> ImageDataset:
    """Load one split of one fold of another data set.

    Args:
        split: `train`, `val`, `test` (the images of the fold) or `train+val`.
        source: Name of the data set.
        fold: Number of the fold, from 1.
        folds: Number of folds.
        groups: What images of one group have in common; all of them are in one fold. `folder`: the sub-folder of their
            class, as in `cat/tom/1.jpg`. `FILE.csv:COLUMN`: the value in a table with a row per file, or for `arrays` a
            row per sample in the same order (training samples, then validation samples). Else the name of a value
            that the data set has for each image, such as `instance` of smallNORB.
        seed: Seed of the folds.
        options: Options of the data set.

    Returns:
        The images and labels.

    Raises:
        ConfigError: If an option is out of range, or a class has fewer images or groups than folds.
        DataError: If groups are missing, or images have several labels.

    Example:
        >>> [len(load_folds(split, "digits", fold=1, folds=5)) for split in ("train", "val", "test")]
        [3600, 400, 1000]
    """
    for name, value, least in (("folds", folds, 2), ("fold", fold, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise ConfigError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    if fold > folds:
        raise ConfigError(f"fold: expected 1 to {folds}, got {fold}")
    check_options(options or {}, DATASETS[source].options, f"data set '{source}'")
    pool = POOLS.get(source, partial(_pool, source))(groups, options or {})
    tested = assign_folds(pool.labels, folds, groups=pool.groups, seed=seed, class_names=pool.class_names) == fold - 1
    rest = (~tested).nonzero().squeeze(1)
    chosen = {"test": tested.nonzero().squeeze(1), "train+val": rest}
    if split in ("train", "val"):
        validates = _validation(pool, rest, seed + fold)
        chosen |= {"train": rest[~validates], "val": rest[validates]}
    data = pool.load(chosen[split], split, rest)
    # Runs of different folds are not tested on the same images: their data sets have different names.
    return data.renamed(f"{data.name}, fold {fold} of {folds}", split)


def _validation(pool: _Pool, rest: Tensor, seed: int) -> Tensor:
    """Return which of the images that are not tested validate: a mask [n]."""
    labels = pool.labels[rest]  # [n]
    groups = None if pool.groups is None else [pool.groups[index] for index in rest.tolist()]
    smallest, count = smallest_class(labels, groups)
    if count < 2:
        kind = "images" if groups is None else "groups"
        raise ConfigError(
            f"folds: expected at least two {kind} of class '{pool.class_names[smallest]}' outside of each fold, for "
            f"training and validation, got {count}"
        )
    assigned = assign_folds(labels, min(VAL_FOLDS, count), groups=groups, seed=seed, class_names=pool.class_names)
    return assigned == 0


def _pool(source: str, groups: str | None, options: Mapping[str, Any]) -> _Pool:
    if source == "folds":
        raise ConfigError("source: expected another data set, got 'folds'")
    if "train+val" not in DATASETS[source].splits:
        raise ConfigError(f"source: expected a data set with training images, got '{source}'")
    data = load_data(source, "train+val", **options)
    if data.num_labels > 1:
        raise DataError(f"folds: expected one label per image, got {data.num_labels} (data set '{source}')")
    values = None
    if groups is not None:
        if groups not in data.meta:
            known = ", ".join(data.meta) or "none"
            raise ConfigError(f"groups: expected a value that '{source}' has for each image ({known}), got '{groups}'")
        values = data.meta[groups].tolist()
    return _Pool(data.labels, values, data.class_names, lambda indices, split, rest: data.subset(indices))


def _folder_pool(groups: str | None, options: Mapping[str, Any]) -> _Pool:
    if "path" not in options:
        raise ConfigError("options.path: expected the folder of your images, but it is not set")
    root, skip_bad = Path(options["path"]).expanduser(), options.get("skip_bad", False)
    fractions = {split: options.get(f"{split}_fraction", 0.1) for split in ("val", "test")}
    scanned = scan_folder(root, fractions, skip_bad=skip_bad)
    report_bad(scanned, "train", skip_bad=skip_bad)
    splits = [split for split in ("train", "val", "test") if split != "test" or split in scanned.held_out]
    class_names = tuple(scanned.splits["train"])
    files = [
        (file, k)
        for k, name in enumerate(class_names)
        for file in sorted(file for split in splits for file in scanned.splits[split].get(name, []))
    ]
    values = None if groups is None else groups_of_files(groups, root, [file for file, _ in files], class_names)
    shape = scanned.image_shape(options.get("image_size"), options.get("channels"))
    in_memory = scanned.count * shape[0] * shape[1] * shape[2] <= options.get("memory_mb", MEMORY_MB) * 1e6

    def load(indices: Tensor, split: str, rest: Tensor) -> ImageDataset:
        chosen = [files[index] for index in indices.tolist()]
        return dataset_of_files(root, split, chosen, class_names, shape, in_memory=in_memory)

    return _Pool(torch.tensor([label for _, label in files]), values, class_names, load)


def _arrays_pool(groups: str | None, options: Mapping[str, Any]) -> _Pool:
    if "path" not in options:
        raise ConfigError("options.path: expected the file of your samples, but it is not set")
    path = Path(options["path"]).expanduser()
    file = read_splits(path, **{name: options[name] for name in ("labels", "rank", "length") if name in options})
    parts = [file.splits[split] for split in ("train", "val") if split in file.splits]
    values, labels = np.concatenate([part for part, _ in parts]), torch.cat([at for _, at in parts])  # [N, ...], [N]
    found = None if groups is None else groups_of_rows(groups, len(labels))

    def load(indices: Tensor, split: str, rest: Tensor) -> ImageDataset:
        places = indices.numpy()
        return dataset_of_arrays(path, split, values[places], labels[indices], file, values[rest.numpy()])

    return _Pool(labels, found, file.class_names, load)


# Sources whose test images are part of the pool, unless they are kept apart.
POOLS: dict[str, Callable[[str | None, Mapping[str, Any]], _Pool]] = {"folder": _folder_pool, "arrays": _arrays_pool}


DATASETS.add(
    "folds",
    DatasetEntry(
        description="one fold of another data set, for cross-validation (`torchcaps train RECIPE --folds 5`)",
        source="the data set given as source",
        licence="that of the source",
        load=load_folds,
        splits=SPLITS,
    ),
)
