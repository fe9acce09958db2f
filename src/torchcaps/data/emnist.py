"""EMNIST: handwritten letters and digits in the format of MNIST, from the same NIST forms.

Cohen, Afshar, Tapson, van Schaik 2017. Three of its subsets: `letters` (26 classes, upper and lower case merged:
124,800 + 20,800), `balanced` (digits, upper case, and the lower case letters that differ from upper case, 47 classes:
112,800 + 18,800), `digits` (10 classes: 240,000 + 40,000). The stored images are transposed; the loader corrects it.
The files come in one archive, gzip.zip.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import split_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.mnist import check_counts, check_idx
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError, DataError

Subset = Literal["letters", "balanced", "digits"]

CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "letters": tuple(string.ascii_lowercase),
    "balanced": tuple(string.digits + string.ascii_uppercase + "abdefghnqrt"),
    "digits": tuple(string.digits),
}
_KINDS = ("images-idx3", "labels-idx1")
_SEED = 2017


def _name(subset: str, half: str, kind: str) -> str:
    return f"emnist-{subset}-{half}-{kind}-ubyte.gz"


SOURCE = Source(
    folder="emnist",
    files=tuple(
        DataFile(_name(subset, half, kind), max_bytes=200_000_000)
        for subset in get_args(Subset)
        for half in ("train", "test")
        for kind in _KINDS
    ),
    check=check_idx,
    home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    mirrors=(
        "https://biometrics.nist.gov/cs_links/EMNIST/",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/",
    ),
    archive=DataFile("gzip.zip", md5="58c8d27c78d21e728a6bc7b3cc06412e", max_bytes=700_000_000),
    inside="gzip/",
)


def load_emnist(split: str, *, subset: Subset = "balanced", val_size: int = 5000) -> ImageDataset:
    """Load one split of a subset of EMNIST.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        subset: `balanced` (47 classes), `letters` (26) or `digits` (10).
        val_size: Number of training images in the validation split.

    Returns:
        The images, uint8 [N, 1, 28, 28], and labels.

    Raises:
        ConfigError: If the subset does not exist.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_emnist("test")[0]  # doctest: +SKIP
    """
    if subset not in get_args(Subset):
        raise ConfigError(f"subset: expected one of {', '.join(get_args(Subset))}, got {subset!r}")
    images, labels, origin = _read(subset, "test" if split == "test" else "train")
    indices = split_indices(labels, split, val_size, len(CLASS_NAMES[subset]), _SEED)
    return InMemoryDataset("emnist", split, images[indices], labels[indices], CLASS_NAMES[subset], origin)


def _read(subset: str, half: str) -> tuple[Tensor, Tensor, str]:
    files = {file.name: file for file in SOURCE.files}
    tensors, path = [], Path()
    for kind in _KINDS:
        file = files[_name(subset, half, kind)]
        path = obtain(file, SOURCE)
        tensors.append(check_idx(path, file))
    images, labels = tensors
    check_counts(path, images, labels)
    numbers = labels.to(torch.int64)  # [N]
    # The labels of the letters start at 1.
    numbers = numbers - 1 if subset == "letters" else numbers
    if not 0 <= int(numbers.min()) <= int(numbers.max()) < len(CLASS_NAMES[subset]):
        low, high = int(numbers.min()), int(numbers.max())
        raise DataError(
            f"{path}: expected labels of {len(CLASS_NAMES[subset])} classes, got {low} to {high}; download it again"
        )
    return images.transpose(1, 2).unsqueeze(1).contiguous(), numbers, str(path.parent)


DATASETS.add(
    "emnist",
    DatasetEntry(
        description="handwritten letters and digits: subset=balanced (47 classes), letters (26) or digits, 28x28 grey",
        source="Gregory Cohen, Saeed Afshar, Jonathan Tapson, Andre van Schaik 2017: EMNIST",
        licence="public domain (NIST)",
        load=load_emnist,
        sources=(SOURCE,),
    ),
)
