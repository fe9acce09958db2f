"""Street View House Numbers: digits cropped from photographs of house numbers, with parts of their neighbours.

Netzer, Wang, Coates, Bissacco, Wu, Ng 2011, format 2 (cropped digits, 32x32): 73,257 training and 26,032 test images,
and 531,131 easier ones (`extra`). MATLAB files; the label of the digit 0 is 10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import split_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.mat import read_mat
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import DataError

_SEED = 2011
_PIXELS = 3 * 32 * 32


def check_svhn(path: Path, file: DataFile) -> tuple[Tensor, Tensor]:
    """Read images [N, 3, 32, 32] and labels [N] of one file."""
    variables = read_mat(path, ("X", "y"), file.max_bytes)
    pixels, numbers = variables["X"], variables["y"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3):
        raise DataError(f"{path}: expected X, bytes of 32 x 32 x 3 x N, got {_shape(pixels)}; download it again")
    # MATLAB drops the last axis of a single image.
    pixels = pixels.reshape(32, 32, 3, -1, order="F")  # [H, W, C, N]
    labels = to_integers(numbers)
    if labels is None or len(labels) != pixels.shape[3]:
        raise DataError(
            f"{path}: expected {pixels.shape[3]} labels y, one per image, got {_shape(numbers)}; download it again"
        )
    if not 1 <= int(labels.min(initial=1)) <= int(labels.max(initial=1)) <= 10:
        raise DataError(
            f"{path}: expected labels from 1 to 10, got {labels.min()} to {labels.max()}; download it again"
        )
    # MATLAB stores the first axis contiguously.
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)))  # [N, C, H, W]
    return images, torch.from_numpy(labels % 10)


def to_integers(values: object) -> np.ndarray | None:
    """Return an array of integers of any type as int64 [N]; None for anything else."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
        return None
    flat = values.reshape(-1)
    if flat.dtype.kind == "f" and not (np.isfinite(flat) & (np.abs(flat) < 2**31) & (flat == np.floor(flat))).all():
        return None
    return flat.astype(np.int64)


def _shape(values: object) -> str:
    return f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__


def _file(subset: str, count: int, md5: str, *, optional: bool = False) -> DataFile:
    return DataFile(f"{subset}_32x32.mat", md5=md5, max_bytes=count * (_PIXELS + 64), optional=optional)


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


def load_svhn(split: str, *, extra: bool = False, val_size: int = 5000) -> ImageDataset:
    """Load one split of SVHN.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        extra: Whether to add the 531,131 easier images (a download of 1.3 GB) to the training images; the validation
            split has none of them.
        val_size: Number of training images in the validation split.

    Returns:
        The images, uint8 [N, 3, 32, 32], and labels.

    Raises:
        DataError: If a file is missing or damaged.

    Example:
        >>> load_svhn("test")[0]  # doctest: +SKIP
    """
    train, test, more = SOURCE.files
    images, labels, origin = _read(test if split == "test" else train)
    indices = split_indices(labels, split, val_size, 10, _SEED)
    images, labels = images[indices], labels[indices]
    if extra and split in ("train", "train+val"):
        more_images, more_labels, _ = _read(more)
        images, labels = torch.cat([images, more_images]), torch.cat([labels, more_labels])
        origin += " (with extra)"
    return InMemoryDataset("svhn", split, images, labels, tuple("0123456789"), origin)


def _read(file: DataFile) -> tuple[Tensor, Tensor, str]:
    path = obtain(file, SOURCE)
    return *check_svhn(path, file), str(path.parent)


DATASETS.add(
    "svhn",
    DatasetEntry(
        description="house numbers, single digits in colour: 68,257 train, 5,000 val, 26,032 test, 3x32x32",
        source="Yuval Netzer and others 2011: Reading Digits in Natural Images with Unsupervised Feature Learning",
        licence="non-commercial use only",
        load=load_svhn,
        sources=(SOURCE,),
    ),
)
