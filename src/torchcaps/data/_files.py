"""Where data files lie, and how they get there: a folder of the user's, the cache, or a mirror and its checksum."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import DataError

# Seconds without a byte from a mirror before the next one is asked.
_TIMEOUT = 20


@dataclass(frozen=True)
class DataFile:
    """A file as its authors distribute it, gzipped: its name, its checksum, and the checksum of what is inside.

    The second one also holds for a copy that was unpacked or packed anew.
    """

    name: str
    sha256: str
    content_sha256: str


def data_folders(folder: str) -> list[Path]:
    """Where the files of a data set are looked for, in this order: $TORCHCAPS_DATA, then the user's cache."""
    own = os.environ.get("TORCHCAPS_DATA")
    return ([Path(own) / folder] if own else []) + [_cache() / folder]


def at_hand(name: str, folders: Sequence[Path]) -> Path | None:
    """The first of these folders' files of that name, gzipped or not; None when there is none."""
    plain = name.removesuffix(".gz")
    found = (folder / kind for folder in folders for kind in (f"{plain}.gz", plain) if (folder / kind).is_file())
    return next(found, None)


def obtain(file: DataFile, folder: str, mirrors: Sequence[str]) -> Path:
    """The file at hand, or else downloaded into the user's cache, where only a whole and checked file ever arrives."""
    folders = data_folders(folder)
    found = at_hand(file.name, folders)
    if found is not None:
        return found
    failures = []
    for mirror in mirrors:
        try:
            return _fetch(mirror + file.name, file.sha256, folders[-1] / file.name)
        # A mirror can fail in many ways (no network, no such page, another file); each one leads to the next mirror.
        except (OSError, ValueError) as error:
            failures.append(f"{mirror}: {_reason(error)}")
    raise DataError(
        f"{file.name}: expected it in {' or '.join(map(str, folders))}, got no such file, and no mirror gave it "
        f"({'; '.join(failures)}); put it there by hand, or set TORCHCAPS_DATA to a folder that holds {folder}/"
    )


def _fetch(url: str, sha256: str, target: Path) -> Path:
    import pooch

    # pooch tells on stderr what it fetches, which would break through a progress bar.
    pooch.get_logger().setLevel(logging.WARNING)
    downloader: Any = pooch.HTTPDownloader(timeout=_TIMEOUT)
    # The download goes to a temporary name beside the target and takes its place only once the checksum holds.
    return Path(pooch.retrieve(url, f"sha256:{sha256}", target.name, str(target.parent), downloader=downloader))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "wrong checksum" if "hash" in text else text[:120] or type(error).__name__


def _cache() -> Path:
    import pooch

    return Path(pooch.os_cache("torchcaps"))
