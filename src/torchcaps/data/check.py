"""Whether the files of a data set are there, whole, and those of its authors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchcaps.data._files import DataFile, Source, data_folders, is_verified
from torchcaps.data.datasets import DATASETS
from torchcaps.errors import DataError

Status = Literal["verified", "unverified", "missing", "broken"]


@dataclass(frozen=True)
class FileState:
    """What is known of one file.

    `verified`: a checksum of the original holds. `unverified`: it can be read, but was packed anew or changed, or no
    checksum is known. `broken`: its reader refuses it. `remedy` says what to do about it.
    """

    name: str
    status: Status
    path: Path | None
    remedy: str


def at_hand_source(name: str) -> Source | None:
    """The form of a data set of which most files are here, the preferred one if none is; None if it has no files."""
    sources = DATASETS[name].sources
    return max(sources, key=lambda source: len(here(source)), default=None)


def here(source: Source) -> list[DataFile]:
    """Those of its files that are at hand."""
    return [file for file in source.files if source.find(file) is not None]


def check_data(name: str) -> list[FileState]:
    """Look at each file of a data set, reading those that are at hand whole; empty for one without files of its own.

    >>> check_data("digits")
    []
    """
    source = at_hand_source(name)
    return [] if source is None else [_check(name, source, file) for file in source.files]


def _check(name: str, source: Source, file: DataFile) -> FileState:
    path = source.find(file)
    can_fetch = bool(source.packages or (source.mirrors and (source.archive or file).has_checksum))
    fetch = f"torchcaps data fetch {name}" if can_fetch else f"get it from {source.home}"
    if path is None:
        if file.optional:
            return FileState(file.name, "missing", None, "needed only when it is asked for")
        return FileState(file.name, "missing", None, f"{fetch} (into {data_folders(source.folder)[-1]})")
    try:
        source.check(path, file)
        verified = is_verified(path, file)
    except DataError as error:
        # The message begins with the path, which is told already.
        reason = str(error).removeprefix(f"{path}: ")
        return FileState(file.name, "broken", path, f"{reason}; remove it, then {fetch}")
    return FileState(file.name, "verified" if verified else "unverified", path, "")
