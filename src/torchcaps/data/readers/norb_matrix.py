"""The binary matrix format of NORB: magic number of the type, number of axes, sizes, values; little-endian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from torchcaps.data.readers._limited_io import open_unzipped, read_at_most
from torchcaps.errors import DataError

# The images of smallNORB are 448 MB, which are read in chunks; all other matrices are below 1 MB.
MAX_BYTES, MAX_WHOLE = 450_000_000, 16_000_000
_MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}


def read_matrix(path: Path, dtype: str, axes: int) -> np.ndarray:
    """Read a whole matrix of bytes (`u1`) or integers (`<i4`) from a file that may be gzipped.

    Args:
        path: The file.
        dtype: Type of the entries, `u1` or `<i4`.
        axes: Number of axes.

    Returns:
        The matrix.
    """
    return np.concatenate(list(matrix_chunks(path, dtype, axes, rows=65536, max_bytes=MAX_WHOLE)))


def matrix_chunks(path: Path, dtype: str, axes: int, rows: int, max_bytes: int = MAX_BYTES) -> Iterator[np.ndarray]:
    """Read a matrix of at most `max_bytes` in chunks of `rows` rows, so that it is never whole in memory.

    Args:
        path: The file.
        dtype: Type of the entries, `u1` or `<i4`.
        axes: Number of axes.
        rows: Rows per chunk.
        max_bytes: Largest size of the matrix.

    Yields:
        The next rows.
    """
    with open_unzipped(path) as file:
        sizes = _header(file, path, dtype, axes)
        total = math.prod(sizes) * np.dtype(dtype).itemsize
        if total > max_bytes:
            raise DataError(f"{path}: expected at most {max_bytes:,} bytes, got a header of {total:,} (damaged)")
        for start in range(0, sizes[0], rows):
            yield _read(file, path, dtype, (min(rows, sizes[0] - start), *sizes[1:]))
        if file.read(1):
            raise DataError(f"{path}: expected {sizes} values, got more (damaged); download it again")


def _header(file: BinaryIO, path: Path, dtype: str, axes: int) -> tuple[int, ...]:
    magic, got = (int(value) for value in _read(file, path, "<i4", (2,)))
    if magic != _MAGIC[dtype]:
        raise DataError(f"{path}: expected a binary matrix with magic {_MAGIC[dtype]:#x}, got {magic & 0xFFFFFFFF:#x}")
    if got != axes:
        raise DataError(f"{path}: expected a matrix with {axes} axes, got {got}")
    # The format has at least three sizes, for any number of axes.
    sizes = [int(size) for size in _read(file, path, "<i4", (max(3, axes),))[:axes]]
    if min(sizes) < 1:
        raise DataError(f"{path}: expected sizes above 0, got {sizes}")
    return tuple(sizes)


def _read(file: BinaryIO, path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    content = read_at_most(file, size)
    if len(content) < size:
        raise DataError(f"{path}: expected {size} more bytes, got {len(content)} (truncated); download it again")
    return np.frombuffer(content, dtype).reshape(shape)
