"""EMNIST: handwritten letters and digits in the format of MNIST, from the same NIST forms.

Cohen, Afshar, Tapson, van Schaik 2017. Three of its parts: `letters` (26 classes, both cases of a letter in one:
124,800 + 20,800), `balanced` (digits, capitals, and those small letters that do not look like their capitals, 47
classes: 112,800 + 18,800), `digits` (10 classes: 240,000 + 40,000). The images are stored lying on their side; here
they stand. The files come in one archive, gzip.zip.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.data._files import DataFile, Source, obtain
from torchcaps.data._split import choose_part
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.data.mnist import check_counts, check_idx
from torchcaps.errors import ConfigError, DataError

Part = Literal["letters", "balanced", "digits"]

CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "letters": tuple(string.ascii_lowercase),
    "balanced": tuple(string.digits + string.ascii_uppercase + "abdefghnqrt"),
    "digits": tuple(string.digits),
}
_KINDS = ("images-idx3", "labels-idx1")
_SEED = 2017


def _name(part: str, half: str, kind: str) -> str:
    return f"emnist-{part}-{half}-{kind}-ubyte.gz"


SOURCE = Source(
    folder="emnist",
    files=tuple(
        DataFile(_name(part, half, kind), most=200_000_000)
        for part in get_args(Part)
        for half in ("train", "test")
        for kind in _KINDS
    ),
    check=check_idx,
    home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    mirrors=(
        "https://biometrics.nist.gov/cs_links/EMNIST/",
        "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/",
    ),
    archive=DataFile("gzip.zip", md5="58c8d27c78d21e728a6bc7b3cc06412e", most=700_000_000),
    inside="gzip/",
)


def load_emnist(split: str, *, part: Part = "balanced", val_size: int = 5000) -> ImageData:
    """One part of EMNIST's letters, balanced classes or digits; `val_size` training images are the validation part."""
    if part not in get_args(Part):
        raise ConfigError(f"part: expected one of {', '.join(get_args(Part))}, got {part!r}")
    images, labels, origin = _read(part, "test" if split == "test" else "train")
    places = choose_part(labels, split, val_size, len(CLASS_NAMES[part]), _SEED)
    return ImageData("emnist", split, images[places], labels[places], CLASS_NAMES[part], origin)


def _read(part: str, half: str) -> tuple[Tensor, Tensor, str]:
    files = {file.name: file for file in SOURCE.files}
    tensors, path = [], Path()
    for kind in _KINDS:
        file = files[_name(part, half, kind)]
        path = obtain(file, SOURCE)
        tensors.append(check_idx(path, file))
    images, labels = tensors
    check_counts(path, images, labels)
    numbers = labels.to(torch.int64)  # [N]
    # The letters are counted from one.
    numbers = numbers - 1 if part == "letters" else numbers
    if not 0 <= int(numbers.min()) <= int(numbers.max()) < len(CLASS_NAMES[part]):
        raise DataError(f"{path}: expected labels of {len(CLASS_NAMES[part])} classes, got others; fetch it again")
    return images.transpose(1, 2).unsqueeze(1).contiguous(), numbers, str(path.parent)


DATASETS.add(
    "emnist",
    Dataset(
        description="handwritten letters and digits: part=balanced (47 classes), letters (26) or digits, 28x28 grey",
        source="Gregory Cohen, Saeed Afshar, Jonathan Tapson, Andre van Schaik 2017: EMNIST",
        licence="public domain (NIST)",
        load=load_emnist,
        sources=(SOURCE,),
    ),
)
