"""The idx format of MNIST: a magic number, the sizes, then the bytes; often gzipped."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.errors import DataError

# Two zero bytes, 8 for unsigned bytes, then the number of axes.
_MAGIC = 0x0800


def read_bytes(path: Path) -> bytes:
    """A file's contents, unpacked if it is gzipped, whatever its name."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        return gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a whole gzip file, got a damaged one ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got {error.strerror}") from None


def read_idx(path: Path, axes: int, sha256: str | None = None) -> Tensor:
    """The bytes of an idx file with this many axes, as a uint8 tensor; `sha256` is of the unpacked contents."""
    content = read_bytes(path)
    if sha256 is not None:
        got = hashlib.sha256(content).hexdigest()
        if got != sha256:
            raise DataError(
                f"{path}: expected contents with sha256 {sha256[:12]}..., got {got[:12]}... "
                f"({len(content)} bytes, damaged or another file); remove it and fetch it again"
            )
    return parse_idx(content, axes, str(path))


def parse_idx(content: bytes, axes: int, origin: str) -> Tensor:
    """The tensor in the bytes of one idx file; `origin` names them in errors.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), 1, "example")
    tensor([5, 7], dtype=torch.uint8)
    """
    head = 4 + 4 * axes
    if len(content) < head:
        raise DataError(f"{origin}: expected an idx file, got {len(content)} bytes (truncated); fetch it again")
    magic, *sizes = struct.unpack_from(f">{1 + axes}I", content)
    if magic != _MAGIC + axes:
        raise DataError(
            f"{origin}: expected an idx file of bytes with {axes} axes (magic {_MAGIC + axes:#010x}), got {magic:#010x}"
        )
    if len(content) - head != math.prod(sizes):
        raise DataError(
            f"{origin}: expected {math.prod(sizes)} bytes after the header, got {len(content) - head} "
            f"(truncated or damaged); fetch it again"
        )
    return torch.frombuffer(bytearray(memoryview(content)[head:]), dtype=torch.uint8).view(sizes)
