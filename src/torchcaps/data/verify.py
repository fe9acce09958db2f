"""Verification of local data files against the checksums of the originals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchcaps.data._sources import DataFile, Source, data_folders, is_verified
from torchcaps.data.registry import DATASETS
from torchcaps.errors import DataError

Status = Literal["verified", "unverified", "missing", "broken"]


@dataclass(frozen=True)
class FileState:
    """The state of one file of a data set.

    Attributes:
        name: Name of the file.
        status: `verified` if a checksum of the original matches, `unverified` if the file is readable but changed,
            repacked or without known checksum, `missing`, or `broken` if its reader rejects it.
        path: Path of the local file, or None.
        remedy: What to do about it, or an empty string.
    """

    name: str
    status: Status
    path: Path | None
    remedy: str


def local_source(name: str) -> Source | None:
    """Return the form of a data set with the most local files, the preferred form on a tie; None without files."""
    sources = DATASETS[name].sources
    return max(sources, key=lambda source: len(local_files(source)), default=None)


def local_files(source: Source) -> list[DataFile]:
    """Return the files of a source that are on this machine."""
    return [file for file in source.files if source.find(file) is not None]


def verify_data(name: str) -> list[FileState]:
    """Read all local files of a data set and compare their checksums.

    Args:
        name: Name of the data set.

    Returns:
        The state of each file; empty for a data set without files.

    Raises:
        UnknownNameError: If the data set does not exist.

    Example:
        >>> verify_data("digits")
        []
    """
    source = local_source(name)
    return [] if source is None else [_verify(name, source, file) for file in source.files]


def _verify(name: str, source: Source, file: DataFile) -> FileState:
    path = source.find(file)
    can_download = bool(source.packages or (source.mirrors and (source.archive or file).has_checksum))
    remedy = f"torchcaps data download {name}" if can_download else f"download it from {source.home}"
    if path is None:
        if file.optional:
            return FileState(file.name, "missing", None, "optional")
        return FileState(file.name, "missing", None, f"{remedy} (into {data_folders(source.folder)[-1]})")
    try:
        source.check(path, file)
        verified = is_verified(path, file)
    except DataError as error:
        # The message begins with the path, which the state already has.
        reason = str(error).removeprefix(f"{path}: ")
        return FileState(file.name, "broken", path, f"{reason}; remove it, then {remedy}")
    return FileState(file.name, "verified" if verified else "unverified", path, "")
