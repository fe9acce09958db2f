"""Reads with an upper bound, so that a damaged or hostile file cannot exhaust memory or block the process."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from torchcaps.errors import DataError

# Bytes per read: a header that announces terabytes costs this much memory if the file ends early.
CHUNK = 1 << 20


class Readable(Protocol):
    """A file-like object that returns at most a given number of bytes."""

    def read(self, size: int, /) -> bytes: ...


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for a pipe, device or folder, without blocking."""
    # Without O_NONBLOCK, opening a FIFO waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def open_unzipped(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file, decompressed if its content is gzip; errors of reading are a DataError."""
    try:
        with open_regular(path) as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not zipped:
                yield file
                return
            with gzip.GzipFile(fileobj=file) as content:
                yield cast(BinaryIO, content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a gzip file, got a damaged one ({error}); download it again") from None
    except OSError as error:
        raise DataError(f"{path}: expected a readable file, got {error.strerror or error}") from None


def read_at_most(file: Readable, size: int) -> bytearray:
    """Read `size` bytes, or fewer at the end of the file; memory grows with the bytes that are really there.

    >>> import io
    >>> read_at_most(io.BytesIO(b"abc"), 2), read_at_most(io.BytesIO(b"abc"), 10**18)
    (bytearray(b'ab'), bytearray(b'abc'))
    """
    content = bytearray()
    while len(content) < size:
        chunk = file.read(min(CHUNK, size - len(content)))
        if not chunk:
            break
        content += chunk
    return content


def read_file(path: Path, max_bytes: int) -> bytearray:
    """Read a whole file, decompressed if it is gzipped; more than `max_bytes` are a DataError."""
    with open_unzipped(path) as file:
        content = read_at_most(file, max_bytes + 1)
    if len(content) > max_bytes:
        raise DataError(f"{path}: expected at most {max_bytes:,} bytes, got more (damaged?); download it again")
    return content
