"""Kuzushiji-MNIST: ten characters of old Japanese cursive script, in the shape of MNIST.

Clanuwat, Bober-Irizar, Kitamoto, Lamb, Yamamoto, Ha 2018. 60,000 + 10,000 grey images of 28x28, distributed both as idx
files and as numpy's npz files; either is read.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._bounded import take
from torchcaps.data._files import DataFile, Source, obtain
from torchcaps.data._split import choose_part
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.data.mnist import check_counts, check_idx
from torchcaps.errors import DataError

CLASS_NAMES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
_SEED = 2018
_MOST = 60_000 * 28 * 28 + 4096


def check_npz(path: Path, file: DataFile) -> Tensor:
    """The bytes in a npz file with a single array, called arr_0; anything but plain bytes is refused."""
    try:
        with zipfile.ZipFile(path) as box, box.open("arr_0.npy") as packed:
            content = take(packed, _MOST + 1)
        if len(content) > _MOST:
            raise ValueError(f"more than {_MOST:,} bytes")
        array = _parse_npy(content)
        axes = 3 if "imgs" in file.name else 1
        if array.ndim != axes or array.size == 0:
            raise ValueError(f"sizes {array.shape} where {axes} axes were expected")
    # Encrypted members, unknown ways of packing, and damaged headers in ways too many to list.
    except Exception as error:
        raise DataError(f"{path}: expected a whole npz file of bytes, got {error}; fetch it again") from None
    return torch.from_numpy(np.ascontiguousarray(array))


def _parse_npy(content: bytearray) -> np.ndarray:
    file = BytesIO(content)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, is_fortran, dtype = read_header[np.lib.format.read_magic(file)](file)
    left = len(content) - file.tell()
    # numpy itself would take as much memory as the header announces before it reads on, and unpickle objects.
    if dtype != np.uint8 or math.prod(shape) != left:
        raise ValueError(f"{left:,} bytes for an array of {dtype} {shape}")
    return np.frombuffer(content, np.uint8, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C")


def _files(names: Sequence[str], sums: Sequence[str]) -> tuple[DataFile, ...]:
    return tuple(DataFile(name, md5=md5) for name, md5 in zip(names, sums, strict=True))


# Training images and labels, then those for testing.
IDX = Source(
    folder="kmnist",
    files=_files(
        [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")],
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
    files=_files([f"kmnist-{part}-{kind}.npz" for part in ("train", "test") for kind in ("imgs", "labels")], [""] * 4),
    check=check_npz,
    mirrors=(),
)


def load_kmnist(split: str, *, val_size: int = 5000) -> ImageData:
    """One part of Kuzushiji-MNIST; `val_size` of its 60,000 training images are the validation part."""
    first = 2 if split == "test" else 0
    here = [source for source in (IDX, NPZ) if all(map(source.find, source.files[first : first + 2]))]
    source = here[0] if here else IDX
    paths = [obtain(file, source) for file in source.files[first : first + 2]]
    images, labels = map(source.check, paths, source.files[first : first + 2])
    check_counts(paths[1], images, labels)
    labels = labels.to(torch.int64)  # [N]
    places = choose_part(labels, split, val_size, len(CLASS_NAMES), _SEED)
    origin = str(paths[0].parent)
    return ImageData("kmnist", split, images.unsqueeze(1)[places], labels[places], CLASS_NAMES, origin)


DATASETS.add(
    "kmnist",
    Dataset(
        description="cursive Japanese characters in ten classes: 55,000 train, 5,000 val, 10,000 test, 28x28 grey",
        source="Tarin Clanuwat and others 2018: Deep Learning for Classical Japanese Literature (ROIS-DS, CODH)",
        licence="CC BY-SA 4.0",
        load=load_kmnist,
        sources=(IDX, NPZ),
    ),
)
