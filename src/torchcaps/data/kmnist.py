"""Kuzushiji-MNIST: ten characters of old Japanese cursive script, in the format of MNIST.

Clanuwat, Bober-Irizar, Kitamoto, Lamb, Yamamoto, Ha 2018. 60,000 + 10,000 grey images of 28x28, as idx or npz files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import split_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.mnist import check_counts, check_idx
from torchcaps.data.readers.npz import read_npz
from torchcaps.data.registry import DATASETS, DatasetEntry

CLASS_NAMES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_SEED = 2018


def check_npz(path: Path, file: DataFile) -> Tensor:
    """Read an npz file: images or labels, by its name."""
    return read_npz(path, 3 if "imgs" in file.name else 1)


def _files(names: Sequence[str], sums: Sequence[str]) -> tuple[DataFile, ...]:
    return tuple(DataFile(name, md5=md5) for name, md5 in zip(names, sums, strict=True))


# Training images and labels, then test images and labels.
IDX = Source(
    folder="kmnist",
    files=_files(
        [f"{subset}-{kind}-ubyte.gz" for subset in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")],
        (
            "bdb82020997e1d708af4cf47b453dcf7",
            "e144d726b3acfaa3e44228e80efcd344",
            "5c965bf0a639b31b8f53240b1b52f4d7",
            "7320c461ea6c1c855c0b718fb2a4b134",
        ),
    ),
    check=check_idx,
    home="https://github.com/rois-codh/kmnist",
    mirrors=("http://codh.rois.ac.jp/kmnist/dataset/kmnist/", "https://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
)
NPZ = replace(
    IDX,
    files=_files(
        [f"kmnist-{subset}-{kind}.npz" for subset in ("train", "test") for kind in ("imgs", "labels")], [""] * 4
    ),
    check=check_npz,
    mirrors=(),
)


def load_kmnist(split: str, *, val_size: int = 5000) -> ImageDataset:
    """Load one split of Kuzushiji-MNIST.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        val_size: Number of the 60,000 training images in the validation split.

    Returns:
        The images, uint8 [N, 1, 28, 28], and labels.

    Raises:
        DataError: If a file is missing or damaged.

    Example:
        >>> load_kmnist("test")[0]  # doctest: +SKIP
    """
    first = 2 if split == "test" else 0
    complete = [source for source in (IDX, NPZ) if all(map(source.find, source.files[first : first + 2]))]
    source = complete[0] if complete else IDX
    paths = [obtain(file, source) for file in source.files[first : first + 2]]
    images, labels = map(source.check, paths, source.files[first : first + 2])
    check_counts(paths[1], images, labels)
    labels = labels.to(torch.int64)  # [N]
    indices = split_indices(labels, split, val_size, len(CLASS_NAMES), _SEED)
    origin = str(paths[0].parent)
    return InMemoryDataset("kmnist", split, images.unsqueeze(1)[indices], labels[indices], CLASS_NAMES, origin)


DATASETS.add(
    "kmnist",
    DatasetEntry(
        description="cursive Japanese characters in ten classes: 55,000 train, 5,000 val, 10,000 test, 28x28 grey",
        source="Tarin Clanuwat and others 2018: Deep Learning for Classical Japanese Literature (ROIS-DS, CODH)",
        licence="CC BY-SA 4.0",
        load=load_kmnist,
        sources=(IDX, NPZ),
    ),
)
