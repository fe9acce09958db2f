"""Taking files out of archives: only those that are asked for, under our own names, and none larger than expected."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, cast

from torchcaps.data._bounded import CHUNK, opened
from torchcaps.errors import DataError

# Archives here have a dozen members; one with a million is an attack on whoever counts them.
_MOST_MEMBERS = 100_000
# Members are read in pieces of this size or less; a header is far smaller.
_MOST_HEADER = CHUNK


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to work in, gone afterwards whatever happens; moving files from there is one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as place:
        yield Path(place)


def unpack(archive: Path, wanted: Mapping[str, tuple[str, int]], target: Path) -> list[Path]:
    """Take members out of a zip or tar file: `wanted` says of each its name in `target` and its largest size.

    All or nothing: an archive without one of them, damaged, or with members that point out of it (absolute paths,
    `..`, links) is a DataError, and nothing is left in `target`. Nothing in it is ever run.
    """
    with workshop(target) as place:
        try:
            _extract(archive, wanted, place)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            # tarfile tells in further lines of every kind of archive that this is not.
            reason = str(error).partition("\n")[0].removesuffix(":")
            raise DataError(
                f"{archive}: expected a whole archive, got a damaged one ({reason}); remove it and fetch it again"
            ) from None
        except DataError:
            raise
        # Encrypted members, unknown ways of packing, and damaged headers in ways too many to list.
        except Exception as error:
            raise DataError(
                f"{archive}: expected an archive that can be unpacked, got {error}; remove it and fetch it again"
            ) from None
        target.mkdir(parents=True, exist_ok=True)
        return [(place / name).replace(target / name) for name, _ in wanted.values()]


def _extract(archive: Path, wanted: Mapping[str, tuple[str, int]], place: Path) -> None:
    missing = dict(wanted)
    for name, is_file, stream in _members(archive):
        _check_name(archive, name)
        entry = missing.pop(str(PurePosixPath(name)), None)
        if entry is None:
            continue
        if not is_file:
            raise DataError(f"{archive}: expected '{name}' to be a file, got a link or folder; get it from its authors")
        with stream() as source, (place / entry[0]).open("wb") as file:
            done = 0
            while chunk := source.read(CHUNK):
                done += len(chunk)
                if done > entry[1]:
                    raise DataError(
                        f"{archive}: expected '{name}' to hold at most {entry[1]:,} bytes, got more; "
                        f"get it from its authors"
                    )
                file.write(chunk)
    if missing:
        raise DataError(f"{archive}: expected it to hold '{next(iter(missing))}', got no such member; fetch it again")


def _members(archive: Path) -> Iterator[tuple[str, bool, Any]]:
    """Name, whether it is a plain file, and how to open it, of each member."""
    with archive.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if zipped:
        with zipfile.ZipFile(archive) as box:
            _check_count(archive, len(box.infolist()))
            for info in box.infolist():
                # The upper half of the attributes is the Unix mode, where there is one: 0o12 marks a link.
                is_file = not info.is_dir() and info.external_attr >> 28 != 0o12
                yield info.filename, is_file, lambda info=info: box.open(info)
        return
    with opened(archive) as file, tarfile.open(fileobj=cast(BinaryIO, _Modest(file)), mode="r:") as tar:
        for count, member in enumerate(tar):
            _check_count(archive, count)
            yield member.name, member.isreg(), lambda member=member: tar.extractfile(member)


class _Modest:
    """A file for tarfile, which would read a header whole into memory however large it says it is."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _check_count(archive: Path, count: int) -> None:
    if count > _MOST_MEMBERS:
        raise DataError(f"{archive}: expected at most {_MOST_MEMBERS:,} members, got more; get it from its authors")


def _check_name(archive: Path, name: str) -> None:
    windows = PureWindowsPath(name)
    if windows.is_absolute() or windows.drive or windows.root or ".." in windows.parts or "\0" in name:
        raise DataError(
            f"{archive}: expected members inside the archive's own folder, got '{name}' (climbs out of it); "
            f"remove it and get it from its authors"
        )
