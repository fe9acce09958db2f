"""Arrays in `.npy` and `.npz` files, without pickles and with a bound on their size."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np

from torchcaps._files import open_regular
from torchcaps.data.readers._limited_io import read_at_most, unpacked_limit
from torchcaps.errors import DataError

MAX_BYTES = 4_000_000_000
_KINDS = "buif"


def read_npy(path: str | Path) -> np.ndarray:
    """Read the array of an `.npy` file.

    Args:
        path: The file.

    Returns:
        The array: numbers, never objects.

    Raises:
        DataError: If the file is damaged, too large or holds something else.

    Example:
        >>> read_npy("signals.npy").shape  # doctest: +SKIP
        (60, 3, 128)
    """
    try:
        with open_regular(Path(path), MAX_BYTES) as file:
            return parse_npy(read_at_most(file, MAX_BYTES))
    # numpy tokenises the header as Python: many kinds of errors.
    except Exception as error:
        raise DataError(f"{path}: expected an .npy file of numbers, got {error}") from None


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an `.npz` file.

    Args:
        path: The file.

    Returns:
        The arrays by name.

    Raises:
        DataError: If the file is damaged, too large or holds something else.

    Example:
        >>> sorted(read_arrays("breastmnist.npz"))[:2]  # doctest: +SKIP
        ['test_images', 'test_labels']
    """
    found: dict[str, np.ndarray] = {}
    try:
        with open_regular(Path(path)) as file, zipfile.ZipFile(file) as box:
            left = limit = unpacked_limit(os.fstat(file.fileno()).st_size, MAX_BYTES)
            for name in box.namelist():
                if name.endswith(".npy"):
                    with box.open(name) as packed:
                        content = read_at_most(packed, left + 1)
                    left -= len(content)
                    if left < 0:
                        raise ValueError(f"more than {limit:,} bytes of a small compressed file")
                    found[name.removesuffix(".npy")] = parse_npy(content)
    # Encrypted members, unknown compression, and many kinds of damaged headers.
    except Exception as error:
        raise DataError(f"{path}: expected an .npz file with arrays of numbers, got {error}") from None
    if not found:
        raise DataError(f"{path}: expected an .npz file with arrays, but it has none")
    return found


def parse_npy(content: bytearray) -> np.ndarray:
    """Return the array of an `.npy` file; objects and sizes that do not fit raise ValueError."""
    file = BytesIO(content)
    versions: Mapping[tuple[int, int], object] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in versions:
        raise ValueError(f"version {version} of the format")
    shape, is_fortran, dtype = versions[version](file)  # pyright: ignore[reportCallIssue]
    left = len(content) - file.tell()
    # numpy would allocate what the header announces, and unpickle objects.
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"an array of {dtype}")
    if math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{left:,} bytes for an array of {dtype} {shape}")
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C")
