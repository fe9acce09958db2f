"""Reads with an upper bound, so that a damaged or hostile file cannot exhaust memory or block the process."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from torchcaps._files import open_regular
from torchcaps.errors import DataError

# Bytes per read: a header that announces terabytes costs this much memory if the file ends early.
CHUNK = 1 << 20
# Compressed files hold up to this many bytes, or this many for each of their own: deflate allows a thousand.
SMALL, MAX_RATIO = 64_000_000, 100


class Readable(Protocol):
    """A file-like object that returns at most a given number of bytes."""

    def read(self, size: int, /) -> bytes: ...


class CappedReader:
    """A file for tarfile that refuses reads of more than a chunk; tarfile reads a header of any announced size.

    Args:
        file: The file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


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
        raise DataError(f"{path}: expected a readable file, and reading failed ({error.strerror or error})") from None


def read_lines(file: BinaryIO, path: Path, longest: int, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each line of an open file.

    Args:
        file: The file.
        path: Its path, for the message.
        longest: Largest number of bytes of a line.
        limit: Largest number of bytes of all lines.

    Yields:
        Number and line.

    Raises:
        DataError: If a line or the file is larger.
    """
    number = seen = 0
    while line := file.readline(longest + 1):
        number, seen = number + 1, seen + len(line)
        if len(line) > longest or seen > limit:
            raise DataError(
                f"{path}: expected lines of at most {longest:,} bytes and {limit:,} in all, got more in line "
                f"{number} (damaged?)"
            )
        yield number, line


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


def unpacked_limit(packed_bytes: int, max_bytes: int) -> int:
    """Return how many bytes a compressed file of others may hold, so that a small file cannot fill the memory.

    >>> unpacked_limit(10, 10**9), unpacked_limit(10**6, 10**9), unpacked_limit(10**8, 10**9)
    (64000000, 100000000, 1000000000)
    """
    return min(max_bytes, max(SMALL, MAX_RATIO * packed_bytes))


def read_file(path: Path, max_bytes: int) -> bytearray:
    """Read a whole file, decompressed if it is gzipped; more than `max_bytes` are a DataError."""
    with open_unzipped(path) as file:
        content = read_at_most(file, max_bytes + 1)
    if len(content) > max_bytes:
        raise DataError(f"{path}: expected at most {max_bytes:,} bytes, got more (damaged?); download it again")
    return content
