"""Extraction of selected files from zip and tar archives, under given names and with an upper bound of their size."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, cast

from torchcaps._files import move, open_regular, replacing
from torchcaps.data.readers._limited_io import CHUNK, CappedReader, open_unzipped
from torchcaps.errors import DataError

# The archives of data sets have a dozen members.
_MAX_MEMBERS = 100_000


@contextmanager
def staging_dir(folder: Path) -> Iterator[Path]:
    """Make a temporary folder beside `folder`, so that its files can be moved there in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".staging-", dir=folder.parent) as place:
        yield Path(place)


def unpack(archive: Path, members: Mapping[str, tuple[str, int]], target: Path) -> list[Path]:
    """Extract members of a zip or tar file: `members` maps each path to its name in `target` and its largest size.

    A damaged archive, a missing member, and a member outside the archive (absolute path, `..`, link) are a DataError;
    then nothing is written to `target`.

    Args:
        archive: The zip or tar file.
        members: Name in `target` and largest size, by path in the archive.
        target: Folder to extract to.

    Returns:
        The extracted files.
    """
    with staging_dir(target) as place:
        try:
            _extract(archive, members, place)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            # The further lines of tarfile's message list all unsuccessful formats.
            reason = str(error).partition("\n")[0].removesuffix(":")
            raise DataError(
                f"{archive}: expected an archive, got a damaged one ({reason}); remove it and download it again"
            ) from None
        except DataError:
            raise
        # Encrypted members, unknown compression, and many kinds of damaged headers.
        except Exception as error:
            raise DataError(
                f"{archive}: expected a readable archive, got {error}; remove it and download it again"
            ) from None
        target.mkdir(parents=True, exist_ok=True)
        return [move(place / name, target / name) for name, _ in members.values()]


def _extract(archive: Path, members: Mapping[str, tuple[str, int]], place: Path) -> None:
    missing = dict(members)
    for name, is_file, stream in _members(archive):
        _check_name(archive, name)
        entry = missing.pop(str(PurePosixPath(name)), None)
        if entry is None:
            continue
        if not is_file:
            raise DataError(f"{archive}: expected '{name}' to be a file, got a link or folder (not the original?)")
        with stream() as source, replacing(place / entry[0]) as file:
            done = 0
            while chunk := source.read(CHUNK):
                done += len(chunk)
                if done > entry[1]:
                    raise DataError(
                        f"{archive}: expected at most {entry[1]:,} bytes in '{name}', got more (not the original?)"
                    )
                file.write(chunk)
    if missing:
        raise DataError(
            f"{archive}: expected a member '{next(iter(missing))}', but it is not in the archive; download it again"
        )


def _members(archive: Path) -> Iterator[tuple[str, bool, Any]]:
    """Iterate over name, whether it is a regular file, and a function that opens it, of each member."""
    with open_regular(archive) as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if zipped:
        with zipfile.ZipFile(archive) as box:
            _check_count(archive, len(box.infolist()))
            for info in box.infolist():
                # The upper half of the attributes is the Unix mode, if any: 0o12 is a link.
                is_file = not info.is_dir() and info.external_attr >> 28 != 0o12
                yield info.filename, is_file, lambda info=info: box.open(info)
        return
    with open_unzipped(archive) as file, tarfile.open(fileobj=cast(BinaryIO, CappedReader(file)), mode="r:") as tar:
        for count, member in enumerate(tar):
            _check_count(archive, count)
            yield member.name, member.isreg(), lambda member=member: tar.extractfile(member)


def _check_count(archive: Path, count: int) -> None:
    if count > _MAX_MEMBERS:
        raise DataError(f"{archive}: expected at most {_MAX_MEMBERS:,} members, got more (not the original?)")


def _check_name(archive: Path, name: str) -> None:
    windows = PureWindowsPath(name)
    if windows.is_absolute() or windows.drive or windows.root or ".." in windows.parts or "\0" in name:
        raise DataError(f"{archive}: expected members inside the archive, got '{name}' (not the original?)")
