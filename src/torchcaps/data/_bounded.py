"""Reading that a damaged or hostile file cannot lead astray: no more is taken into memory than is really there."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from torchcaps.errors import DataError

# So much at a time: a header that announces terabytes costs this much memory when the file ends early.
CHUNK = 1 << 20


class Readable(Protocol):
    """Anything that gives up to so many bytes."""

    def read(self, size: int, /) -> bytes: ...


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file open for reading, unpacked if it is gzipped, whatever its name; damage shows as a DataError."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with cast(BinaryIO, gzip.open(path) if zipped else path.open("rb")) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a whole gzip file, got a damaged one ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: expected a file that can be read, got {error.strerror or error}") from None


def take(file: Readable, wanted: int) -> bytearray:
    """So many bytes, or fewer where the file ends; memory grows with what comes, not with what was announced.

    >>> import io
    >>> take(io.BytesIO(b"abc"), 2), take(io.BytesIO(b"abc"), 10**18)
    (bytearray(b'ab'), bytearray(b'abc'))
    """
    content = bytearray()
    while len(content) < wanted:
        chunk = file.read(min(CHUNK, wanted - len(content)))
        if not chunk:
            break
        content += chunk
    return content


def take_all(path: Path, most: int) -> bytearray:
    """The whole of a file, unpacked if it is gzipped, unless it holds more than `most` bytes."""
    with opened(path) as file:
        content = take(file, most + 1)
    if len(content) > most:
        raise DataError(f"{path}: expected at most {most:,} bytes, got more (damaged, or another file); fetch it again")
    return content
