"""affNIST: MNIST digits on 40x40, each under 32 random affine transformations.

Tijmen Tieleman 2013. Sabour et al. 2017 test generalisation with it: a network is trained on centred or shifted digits
and tested on `transformed` ones (rotated, sheared, scaled and shifted). `centered` has 50,000 + 10,000 + 10,000 images,
`transformed` 32 times as many, with 32 batches for training. MATLAB files, as they are distributed:

    affnist/transformed/test.mat  validation.mat  training_batches/1.mat ... 32.mat
    affnist/just_centered/training.mat  validation.mat  test.mat
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.mat import read_mat
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.data.svhn import to_integers
from torchcaps.errors import ConfigError, DataError

Kind = Literal["transformed", "centered"]

_SIDE = 40
_HOME = "https://www.cs.toronto.edu/~tijmen/affNIST/"


def check_affnist(path: Path, file: DataFile) -> tuple[Tensor, Tensor]:
    """Read images [N, 1, 40, 40] and labels [N] of one file."""
    content = read_mat(path, ("affNISTdata",), file.max_bytes)["affNISTdata"]
    pixels = content.get("image") if isinstance(content, dict) else None
    labels = to_integers(content.get("label_int")) if isinstance(content, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[0] != _SIDE**2:
        raise DataError(f"{path}: expected bytes of {_SIDE**2} x N as images, but there are none; download it again")
    # Each column is one image in row-major order.
    images = pixels.reshape(_SIDE**2, -1, order="F").T.reshape(-1, 1, _SIDE, _SIDE)  # [N, 1, 40, 40]
    if labels is None or len(labels) != len(images):
        got = "no labels" if labels is None else f"{len(labels)}"
        raise DataError(f"{path}: expected {len(images)} labels, one per image, got {got}; download it again")
    if not 0 <= int(labels.min(initial=0)) <= int(labels.max(initial=0)) <= 9:
        raise DataError(f"{path}: expected labels from 0 to 9, got {labels.min()} to {labels.max()}; download it again")
    return torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels)


def _source(folder: str, counts: dict[str, int]) -> Source:
    # Each image also has 10 numbers of up to 8 bytes, and its transformation.
    files = tuple(
        DataFile(f"{name}.mat", max_bytes=count * (_SIDE**2 + 256), optional="batches" in name)
        for name, count in counts.items()
    )
    return Source(folder=f"affnist/{folder}", files=files, check=check_affnist, home=_HOME)


SOURCES: dict[str, Source] = {
    "transformed": _source(
        "transformed",
        {
            **{f"training_batches/{number}": 50_000 for number in range(1, 33)},
            "validation": 320_000,
            "test": 320_000,
        },
    ),
    "centered": _source("just_centered", {"training": 50_000, "validation": 10_000, "test": 10_000}),
}


def load_affnist(split: str, *, kind: Kind = "transformed") -> ImageDataset:
    """Load one split of affNIST; the validation split is that of the authors.

    Args:
        split: `train`, `val`, `test` or `train+val`. Of the 32 batches of transformed training images (80 MB each),
            those on this machine are loaded.
        kind: `transformed` or `centered`.

    Returns:
        The images, uint8 [N, 1, 40, 40], and labels.

    Raises:
        ConfigError: If the kind does not exist.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_affnist("test")[0]  # doctest: +SKIP
    """
    if kind not in get_args(Kind):
        raise ConfigError(f"kind: expected one of {', '.join(get_args(Kind))}, got {kind!r}")
    source = SOURCES[kind]
    *train, val, test = source.files
    # Without local batches, the error names the first one.
    local = [file for file in train if source.find(file) is not None] or train[:1]
    files = {"train": local, "val": [val], "test": [test], "train+val": [*local, val]}[split]
    paths = [obtain(file, source) for file in files]
    contents = list(map(check_affnist, paths, files))
    # A single file of half a gigabyte is not copied.
    images, labels = contents[0] if len(contents) == 1 else map(torch.cat, zip(*contents, strict=True))
    short = split.startswith("train") and len(local) < len(train)
    origin = f"{paths[-1].parent}" + (f" ({len(local)} of {len(train)} training batches)" if short else "")
    return InMemoryDataset("affnist", split, images, labels, tuple("0123456789"), origin)


DATASETS.add(
    "affnist",
    DatasetEntry(
        description="MNIST digits on 40x40, transformed 32 times each (320,000 test), or kind=centered; grey",
        source="Tijmen Tieleman 2013: affNIST",
        licence="not stated; derived from MNIST",
        load=load_affnist,
        sources=(SOURCES["transformed"], SOURCES["centered"]),
    ),
)
