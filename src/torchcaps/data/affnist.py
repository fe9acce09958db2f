"""affNIST: MNIST digits on 40x40, each under 32 random affine transformations.

Tijmen Tieleman 2013. The test of Sabour et al. 2017 for generalisation: train on `centered` (digits in the middle of
40x40) or on digits that are only shifted, test on `transformed` (rotated, sheared, scaled and shifted). Centered:
50,000 + 10,000 + 10,000 images; transformed: 32 times as many, those for training in 32 batches. MATLAB files, laid
out as they are distributed:

    affnist/transformed/test.mat  validation.mat  training_batches/1.mat ... 32.mat
    affnist/just_centered/training.mat  validation.mat  test.mat
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._files import DataFile, Source, obtain
from torchcaps.data._mat import read_mat
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.data.svhn import whole_numbers
from torchcaps.errors import ConfigError, DataError

Kind = Literal["transformed", "centered"]

_SIDE = 40
_HOME = "https://www.cs.toronto.edu/~tijmen/affNIST/"


def check_affnist(path: Path, file: DataFile) -> tuple[Tensor, Tensor]:
    """Images [N, 1, 40, 40] and labels [N] of one file."""
    found = read_mat(path, ("affNISTdata",), file.most)["affNISTdata"]
    pixels = found.get("image") if isinstance(found, dict) else None
    labels = whole_numbers(found.get("label_int")) if isinstance(found, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[0] != _SIDE**2:
        raise DataError(f"{path}: expected images, bytes of {_SIDE**2} x N, got none; fetch it again")
    # Each column is an image, row by row.
    images = pixels.reshape(_SIDE**2, -1, order="F").T.reshape(-1, 1, _SIDE, _SIDE)  # [N, 1, 40, 40]
    if labels is None or len(labels) != len(images):
        got = "none" if labels is None else f"{len(labels)}"
        raise DataError(f"{path}: expected {len(images)} labels, one for each image, got {got}; fetch it again")
    if not 0 <= int(labels.min(initial=0)) <= int(labels.max(initial=0)) <= 9:
        raise DataError(f"{path}: expected labels from 0 to 9, got others; fetch it again")
    return torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels)


def _source(folder: str, counts: dict[str, int]) -> Source:
    # Beside the pixels, there are 10 numbers of up to 8 bytes for each image, and its transformation.
    files = tuple(
        DataFile(f"{name}.mat", most=count * (_SIDE**2 + 256), optional="batches" in name)
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


def load_affnist(split: str, *, kind: Kind = "transformed") -> ImageData:
    """One part of affNIST, `transformed` or `centered`; the validation part is the authors' own.

    Of the 32 batches of transformed training images (80 MB each) those are taken that are at hand.
    """
    if kind not in get_args(Kind):
        raise ConfigError(f"kind: expected one of {', '.join(get_args(Kind))}, got {kind!r}")
    source = SOURCES[kind]
    *train, val, test = source.files
    # Without any, the first one says what is missing and where it belongs.
    here = [file for file in train if source.find(file) is not None] or train[:1]
    files = {"train": here, "val": [val], "test": [test], "train+val": [*here, val]}[split]
    paths = [obtain(file, source) for file in files]
    parts = list(map(check_affnist, paths, files))
    # Half a gigabyte is not copied without need.
    images, labels = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
    short = split.startswith("train") and len(here) < len(train)
    origin = f"{paths[-1].parent}" + (f" ({len(here)} of {len(train)} training batches)" if short else "")
    return ImageData("affnist", split, images, labels, tuple("0123456789"), origin)


DATASETS.add(
    "affnist",
    Dataset(
        description="MNIST digits on 40x40, transformed 32 times each (320,000 test), or kind=centered; grey",
        source="Tijmen Tieleman 2013: affNIST",
        licence="not stated; derived from MNIST",
        load=load_affnist,
        sources=(SOURCES["transformed"], SOURCES["centered"]),
    ),
)
