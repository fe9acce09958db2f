from contextlib import nullcontext
from dataclasses import replace

import pytest

from torchcaps.data import DATASETS, fetch, fetch_data
from torchcaps.data._files import DataFile, Package, Source
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


def bring(files, folder):
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).write_bytes(b"from a package")


def refuse(files, folder):
    raise DataError("no registry")


def test_from_the_mirrors(small, monkeypatch):
    asked, watched = [], []

    def bar(done: int, total: int) -> None: ...

    def obtain(file, source, progress):
        asked.append((file.name, progress))

    def watch(what):
        watched.append(what)
        return nullcontext(bar)

    monkeypatch.setattr(fetch, "obtain", obtain)
    assert fetch_data("small", watch) == ["one", "two"]
    assert asked == [("one", bar), ("two", bar)]
    assert watched == ["one", "two"]


def test_what_is_there_is_left_alone(small, own_data, monkeypatch):
    (own_data / "small" / "one").write_bytes(b"mine")
    small(packages=(Package("a package", bring),))
    assert fetch_data("small") == ["two"]
    assert (own_data / "small" / "one").read_bytes() == b"mine"
    assert fetch_data("small") == []


def test_out_of_a_package_where_no_mirror_answers(small, own_data):
    small(packages=(Package("another", refuse), Package("a package", bring)))
    assert fetch_data("small") == ["one", "two"]
    assert sorted(path.name for path in (own_data.parent / "cache" / "small").iterdir()) == ["one", "two"]


def test_nobody_has_it(small):
    small(packages=(Package("a package", refuse),))
    with pytest.raises(DataError, match=r"one: expected it in .*get it from https://home.*; a package: no registry"):
        fetch_data("small")


def test_nothing_to_fetch():
    assert fetch_data("digits") == []
