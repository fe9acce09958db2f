"""The idx format of MNIST: a magic number, the sizes, then the bytes; often gzipped."""

from __future__ import annotations

import hashlib
import io
import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data._bounded import Readable, opened, take
from torchcaps.errors import DataError

# Two zero bytes, 8 for unsigned bytes, then the number of axes.
_MAGIC = 0x0800
# The largest file of this kind that a data set here has is EMNIST's, 188 MB; more is taken for an attack or a mistake.
MOST = 256_000_000


def read_idx(path: Path, axes: int, sha256: str | None = None) -> Tensor:
    """The bytes of an idx file with this many axes, as a uint8 tensor; `sha256` is of the unpacked contents."""
    with opened(path) as file:
        head, body, sizes = _parse(file, axes, str(path))
    if sha256 is not None:
        digest = hashlib.sha256(head)
        digest.update(body)
        got = digest.hexdigest()
        if got != sha256:
            raise DataError(
                f"{path}: expected contents with sha256 {sha256[:12]}..., got {got[:12]}... "
                f"({len(head) + len(body)} bytes, damaged or another file); remove it and fetch it again"
            )
    return torch.frombuffer(body, dtype=torch.uint8).view(sizes)


def parse_idx(content: bytes, axes: int, origin: str) -> Tensor:
    """The tensor in the bytes of one idx file; `origin` names them in errors.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), 1, "example")
    tensor([5, 7], dtype=torch.uint8)
    """
    _, body, sizes = _parse(io.BytesIO(content), axes, origin)
    return torch.frombuffer(body, dtype=torch.uint8).view(sizes)


def _parse(file: Readable, axes: int, origin: str) -> tuple[bytearray, bytearray, list[int]]:
    head = take(file, 4 + 4 * axes)
    if len(head) < 4 + 4 * axes:
        raise DataError(f"{origin}: expected an idx file, got {len(head)} bytes (truncated); fetch it again")
    magic, *sizes = struct.unpack(f">{1 + axes}I", head)
    if magic != _MAGIC + axes:
        raise DataError(
            f"{origin}: expected an idx file of bytes with {axes} axes (magic {_MAGIC + axes:#010x}), got {magic:#010x}"
        )
    wanted = math.prod(sizes)
    if wanted == 0:
        raise DataError(f"{origin}: expected an idx file that is not empty, got sizes {sizes}; fetch it again")
    if wanted > MOST:
        raise DataError(f"{origin}: expected at most {MOST:,} bytes, got a header that announces {wanted:,} (damaged)")
    # One byte more than announced, to notice what should not be there; a packed file is never unpacked beyond that.
    body = take(file, wanted + 1)
    if len(body) != wanted:
        got = f"{len(body)}" if len(body) < wanted else "more"
        raise DataError(
            f"{origin}: expected {wanted} bytes after the header, got {got} (truncated or damaged); fetch it again"
        )
    return head, body, sizes
