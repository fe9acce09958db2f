"""numpy's npz files: one array of bytes as a whole, or a large one in chunks."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from torchcaps._files import open_regular
from torchcaps.data.readers._limited_io import read_at_most
from torchcaps.errors import DataError

# Size of the training images of KMNIST with their header.
_MAX_BYTES = 60_000 * 28 * 28 + 4096


def read_npz(path: Path, axes: int) -> Tensor:
    """Read the array `arr_0` of an npz file, bytes with a given number of axes."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as box, box.open("arr_0.npy") as packed:
            content = read_at_most(packed, _MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES:,} bytes")
        array = _parse_npy(content)
        if array.ndim != axes or array.size == 0:
            raise ValueError(f"sizes {array.shape}, expected {axes} axes")
    # Encrypted members, unknown compression, and many kinds of damaged headers.
    except Exception as error:
        raise DataError(f"{path}: expected an npz file of bytes, got {error}; download it again") from None
    return torch.from_numpy(np.ascontiguousarray(array))


def _parse_npy(content: bytearray) -> np.ndarray:
    file = BytesIO(content)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, is_fortran, dtype = read_header[np.lib.format.read_magic(file)](file)
    left = len(content) - file.tell()
    # numpy would allocate what the header announces, and unpickle objects.
    if dtype != np.uint8 or math.prod(shape) != left:
        raise ValueError(f"{left:,} bytes for an array of {dtype} {shape}")
    return np.frombuffer(content, np.uint8, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C")


def npz_chunks(path: Path, name: str, shape: tuple[int, ...], rows: int = 4096) -> Iterator[np.ndarray]:
    """Yield an array of bytes of an npz file, a number of rows at a time; the header must announce this shape.

    Args:
        path: The zip file.
        name: Name of the array.
        shape: Shape of the array.
        rows: Rows per chunk.

    Yields:
        The next rows.
    """
    row = math.prod(shape[1:])
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as box, box.open(f"{name}.npy") as packed:
            _check_header(packed, shape)
            for start in range(0, shape[0], rows):
                size = min(rows, shape[0] - start) * row
                content = read_at_most(packed, size)
                if len(content) != size:
                    raise ValueError(f"{start:,} of {shape[0]:,} rows")
                yield np.frombuffer(content, np.uint8).reshape(-1, *shape[1:])
    # Encrypted members, unknown compression, and many kinds of damaged headers.
    except Exception as error:
        raise DataError(f"{path}: expected bytes '{name}' of {shape}, got {error}; download it again") from None


def _check_header(packed: IO[bytes], shape: tuple[int, ...]) -> None:
    header = np.lib.format.read_array_header_1_0 if np.lib.format.read_magic(packed) == (1, 0) else None
    got = header(packed) if header is not None else None
    if got != (shape, False, np.dtype(np.uint8)):
        raise ValueError(f"a header of {got}")
