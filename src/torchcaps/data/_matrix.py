"""NORB's binary matrices: a magic number for the type, the number of axes, the sizes, the values; little-endian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from torchcaps.data._bounded import opened, take
from torchcaps.errors import DataError

# The images of smallNORB are 448 MB, all else is far below 1 MB; more is taken for an attack or a mistake.
MOST, MOST_WHOLE = 450_000_000, 16_000_000
_MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}


def read_matrix(path: Path, dtype: str, axes: int) -> np.ndarray:
    """A whole matrix of bytes (`u1`) or integers (`<i4`), from a file that may be gzipped."""
    return np.concatenate(list(matrix_chunks(path, dtype, axes, rows=65536, most=MOST_WHOLE)))


def matrix_chunks(path: Path, dtype: str, axes: int, rows: int, most: int = MOST) -> Iterator[np.ndarray]:
    """A matrix so many rows at a time, so that a large one never lies in memory whole; at most `most` bytes in all."""
    with opened(path) as file:
        sizes = _header(file, path, dtype, axes)
        total = math.prod(sizes) * np.dtype(dtype).itemsize
        if total > most:
            raise DataError(f"{path}: expected at most {most:,} bytes, got a header that announces {total:,} (damaged)")
        for start in range(0, sizes[0], rows):
            yield _take(file, path, dtype, (min(rows, sizes[0] - start), *sizes[1:]))
        if file.read(1):
            raise DataError(f"{path}: expected {sizes} values, got more (damaged); fetch it again")


def _header(file: BinaryIO, path: Path, dtype: str, axes: int) -> tuple[int, ...]:
    magic, got = (int(value) for value in _take(file, path, "<i4", (2,)))
    if magic != _MAGIC[dtype]:
        raise DataError(f"{path}: expected a binary matrix with magic {_MAGIC[dtype]:#x}, got {magic & 0xFFFFFFFF:#x}")
    if got != axes:
        raise DataError(f"{path}: expected a matrix with {axes} axes, got {got}")
    # At least three sizes are written, whatever the number of axes.
    sizes = [int(size) for size in _take(file, path, "<i4", (max(3, axes),))[:axes]]
    if min(sizes) < 1:
        raise DataError(f"{path}: expected a matrix that is not empty, got sizes {sizes}")
    return tuple(sizes)


def _take(file: BinaryIO, path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    wanted = math.prod(shape) * np.dtype(dtype).itemsize
    content = take(file, wanted)
    if len(content) < wanted:
        raise DataError(f"{path}: expected {wanted} more bytes, got {len(content)} (truncated); fetch it again")
    return np.frombuffer(content, dtype).reshape(shape)
