"""The idx format of MNIST: magic number, sizes, bytes; often gzipped."""

from __future__ import annotations

import hashlib
import io
import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.readers._limited_io import Readable, open_unzipped, read_at_most
from torchcaps.errors import DataError

# Two zero bytes, 8 for unsigned bytes, then the number of axes.
_MAGIC = 0x0800
# The largest idx file of a data set is that of EMNIST, 188 MB.
MAX_BYTES = 256_000_000


def read_idx(path: Path, axes: int, sha256: str | None = None) -> Tensor:
    """Read an idx file of bytes with a given number of axes; `sha256` is the checksum of the uncompressed content.

    Args:
        path: The file.
        axes: Number of axes.
        sha256: Checksum of the uncompressed content; None for any content.

    Returns:
        The tensor, uint8.
    """
    with open_unzipped(path) as file:
        head, body, sizes = _parse(file, axes, str(path))
    if sha256 is not None:
        digest = hashlib.sha256(head)
        digest.update(body)
        got = digest.hexdigest()
        if got != sha256:
            raise DataError(
                f"{path}: expected content with sha256 {sha256[:12]}..., got {got[:12]}... "
                f"({len(head) + len(body)} bytes); remove it and download it again"
            )
    return torch.frombuffer(body, dtype=torch.uint8).view(sizes)


def parse_idx(content: bytes, axes: int, origin: str) -> Tensor:
    """Return the tensor in the content of one idx file; errors name its `origin`.

    Args:
        content: Content of the file.
        axes: Number of axes.
        origin: Name of the file in error messages.

    Returns:
        The tensor, uint8.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), 1, "example")
        tensor([5, 7], dtype=torch.uint8)
    """
    _, body, sizes = _parse(io.BytesIO(content), axes, origin)
    return torch.frombuffer(body, dtype=torch.uint8).view(sizes)


def _parse(file: Readable, axes: int, origin: str) -> tuple[bytearray, bytearray, list[int]]:
    head = read_at_most(file, 4 + 4 * axes)
    if len(head) < 4 + 4 * axes:
        raise DataError(f"{origin}: expected an idx file, got {len(head)} bytes (truncated); download it again")
    magic, *sizes = struct.unpack(f">{1 + axes}I", head)
    if magic != _MAGIC + axes:
        raise DataError(
            f"{origin}: expected an idx file of bytes with {axes} axes (magic {_MAGIC + axes:#010x}), got {magic:#010x}"
        )
    size = math.prod(sizes)
    if size == 0:
        raise DataError(f"{origin}: expected sizes above 0, got {sizes}; download it again")
    if size > MAX_BYTES:
        raise DataError(f"{origin}: expected at most {MAX_BYTES:,} bytes, got a header of {size:,} (damaged)")
    # One byte more than announced, to notice trailing bytes.
    body = read_at_most(file, size + 1)
    if len(body) != size:
        got = f"{len(body)}" if len(body) < size else "more"
        raise DataError(
            f"{origin}: expected {size} bytes after the header, got {got} (truncated or damaged); download it again"
        )
    return head, body, sizes
