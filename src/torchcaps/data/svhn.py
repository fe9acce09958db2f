"""Street View House Numbers: single digits cut out of photographs of house fronts, in colour, with their neighbours.

Netzer, Wang, Coates, Bissacco, Wu, Ng 2011, format 2 (cropped digits, 32x32): 73,257 for training, 26,032 for testing
and 531,131 further, easier ones (`extra`). MATLAB files; the label 10 stands for the digit 0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._files import DataFile, Source, obtain
from torchcaps.data._mat import read_mat
from torchcaps.data._split import choose_part
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.errors import DataError

_SEED = 2011
_PIXELS = 3 * 32 * 32


def check_svhn(path: Path, file: DataFile) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] and labels [N] of one file."""
    found = read_mat(path, ("X", "y"), file.most)
    pixels, numbers = found["X"], found["y"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3):
        raise DataError(f"{path}: expected X to be bytes of 32 x 32 x 3 x N, got {_shape(pixels)}; fetch it again")
    # A single image loses its last axis in MATLAB's hands.
    pixels = pixels.reshape(32, 32, 3, -1, order="F")  # [H, W, C, N]
    labels = whole_numbers(numbers)
    if labels is None or len(labels) != pixels.shape[3]:
        raise DataError(
            f"{path}: expected y to hold {pixels.shape[3]} labels, one for each image, got {_shape(numbers)}; "
            f"fetch it again"
        )
    if not 1 <= int(labels.min(initial=1)) <= int(labels.max(initial=1)) <= 10:
        raise DataError(f"{path}: expected labels from 1 to 10, got others; fetch it again")
    # Stored column by column, image by image: a transposition brings it into our order.
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))  # [N, C, H, W]
    return images, torch.from_numpy(labels % 10)


def whole_numbers(values: object) -> np.ndarray | None:
    """An array of whole numbers of any type, as int64 [N]; None if it is not that."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
        return None
    flat = values.reshape(-1)
    if flat.dtype.kind == "f" and not (np.isfinite(flat) & (np.abs(flat) < 2**31) & (flat == np.floor(flat))).all():
        return None
    return flat.astype(np.int64)


def _shape(values: object) -> str:
    return f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__


def _file(part: str, count: int, md5: str, *, optional: bool = False) -> DataFile:
    return DataFile(f"{part}_32x32.mat", md5=md5, most=count * (_PIXELS + 64), optional=optional)


SOURCE = Source(
    folder="svhn",
    files=(
        _file("train", 73_257, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        _file("test", 26_032, "eb5a983be6a315427106f1b164d9cef3"),
        _file("extra", 531_131, "a93ce644f1a588dc4d68dda5feec44a7", optional=True),
    ),
    check=check_svhn,
    home="http://ufldl.stanford.edu/housenumbers/",
    mirrors=("http://ufldl.stanford.edu/housenumbers/", "https://ufldl.stanford.edu/housenumbers/"),
)


def load_svhn(split: str, *, extra: bool = False, val_size: int = 5000) -> ImageData:
    """One part of SVHN; `val_size` training images are the validation part.

    `extra` adds the 531,131 further images (1.3 GB to fetch) to those for training; validation is drawn without them.
    """
    train, test, more = SOURCE.files
    images, labels, origin = _read(test if split == "test" else train)
    places = choose_part(labels, split, val_size, 10, _SEED)
    images, labels = images[places], labels[places]
    if extra and split in ("train", "train+val"):
        further, their_labels, _ = _read(more)
        images, labels = torch.cat([images, further]), torch.cat([labels, their_labels])
        origin += " (with extra)"
    return ImageData("svhn", split, images, labels, tuple("0123456789"), origin)


def _read(file: DataFile) -> tuple[Tensor, Tensor, str]:
    path = obtain(file, SOURCE)
    return *check_svhn(path, file), str(path.parent)


DATASETS.add(
    "svhn",
    Dataset(
        description="house numbers, single digits in colour: 68,257 train, 5,000 val, 26,032 test, 3x32x32",
        source="Yuval Netzer and others 2011: Reading Digits in Natural Images with Unsupervised Feature Learning",
        licence="non-commercial use only",
        load=load_svhn,
        sources=(SOURCE,),
    ),
)
