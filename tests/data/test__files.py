import gzip
import hashlib
from dataclasses import replace

import pytest

from formats import tar_of
from torchcaps.data import _files
from torchcaps.data._download import DownloadError
from torchcaps.data._files import DataFile, Source, at_hand, data_folders, is_verified, obtain
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
    monkeypatch.setattr("torchcaps.data._files._cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "set"


@pytest.fixture
def mirrors(monkeypatch):
    """Gives what is entered under a name, if it is right, in the place of the network."""
    stored, asked = {}, []

    def download(urls, target, is_right, *, most, progress=None):
        asked.append(urls)
        content = stored.get(target.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            raise DownloadError("no network")
        target.write_bytes(content)
        if not is_right(target):
            target.unlink()
            raise DownloadError("wrong checksum")
        return target

    monkeypatch.setattr(_files, "download", download)
    return stored, asked


def test_the_users_folder_comes_first(tmp_path, monkeypatch, cache):
    assert data_folders("set") == [cache]
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    assert data_folders("set") == [tmp_path / "own" / "set", cache]


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _files._cache().name == "torchcaps"


def test_at_hand_gzipped_or_not(tmp_path):
    assert at_hand("some.gz", [tmp_path]) is None
    (tmp_path / "some").write_bytes(b"plain")
    assert at_hand("some.gz", [tmp_path / "elsewhere", tmp_path]) == tmp_path / "some"
    (tmp_path / "some.gz").write_bytes(b"zipped")
    assert at_hand("some.gz", [tmp_path]) == tmp_path / "some.gz"


def test_downloads_once(mirrors, cache):
    stored, asked = mirrors
    stored["some.gz"] = CONTENT
    assert obtain(FILE, SOURCE) == cache / "some.gz"
    assert obtain(FILE, SOURCE).read_bytes() == CONTENT
    assert asked == [["https://one/some.gz", "https://two/some.gz"]]


@pytest.mark.parametrize("file", [FILE, DataFile("some.gz", md5=hashlib.md5(CONTENT).hexdigest())])
def test_either_checksum_is_held_to(mirrors, cache, file):
    stored, _ = mirrors
    stored["some.gz"] = CONTENT + b"x"
    with pytest.raises(DataError, match=r"some\.gz: expected it in .*got no such file, and no mirror gave .*checksum"):
        obtain(file, SOURCE)
    assert list(cache.iterdir()) == []
    stored["some.gz"] = CONTENT
    assert obtain(file, SOURCE).read_bytes() == CONTENT


def test_no_download_without_a_checksum(mirrors, cache):
    mirrors[0]["some"] = b"anything"
    with pytest.raises(DataError, match="its checksum is not known, so that a download could not be trusted"):
        obtain(DataFile("some"), SOURCE)
    assert mirrors[1] == []


def test_no_network_says_what_to_do(mirrors):
    remedy = r"no network.*get it from https://home and put it there by hand, or set TORCHCAPS_DATA to .*holds set/"
    with pytest.raises(DataError, match=remedy):
        obtain(FILE, SOURCE)


def test_cache_that_cannot_be_written(cache):
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"some\.gz: expected it in .*Not a directory"):
        obtain(FILE, SOURCE)


def test_an_archive_is_fetched_unpacked_and_gone(mirrors, cache):
    mirrors[0]["set.tar.gz"] = ARCHIVE
    assert obtain(PACKED.files[1], PACKED).read_bytes() == b"two"
    assert sorted(path.name for path in cache.iterdir()) == ["one.bin", "two.bin"]
    assert sorted(path.name for path in cache.parent.iterdir()) == ["set"]


@pytest.mark.parametrize("place", ["set", "."])
def test_the_users_own_archive_is_unpacked_into_the_cache(mirrors, cache, tmp_path, monkeypatch, place):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    archive = tmp_path / "own" / place / "set.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(ARCHIVE)
    assert obtain(PACKED.files[0], PACKED) == cache / "one.bin"
    assert archive.exists()
    assert mirrors[1] == []


def test_unpacked_as_it_is_distributed(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    path = tmp_path / "set" / "inside" / "one.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one")
    assert obtain(PACKED.files[0], PACKED) == path


def test_an_archive_without_an_optional_file(mirrors):
    mirrors[0]["set.tar.gz"] = ARCHIVE
    with pytest.raises(DataError, match=r"more\.bin: expected it in .*the archive does not hold it"):
        obtain(PACKED.files[2], PACKED)


def test_another_process_was_faster(mirrors, cache, monkeypatch):
    def unpack(archive, wanted, target):
        target.mkdir(parents=True, exist_ok=True)
        (target / "one.bin").write_bytes(b"theirs")
        raise DataError("the archive is gone")

    mirrors[0]["set.tar.gz"] = ARCHIVE
    monkeypatch.setattr(_files, "unpack", unpack)
    assert obtain(PACKED.files[0], PACKED).read_bytes() == b"theirs"
    with pytest.raises(DataError, match="the archive is gone"):
        obtain(PACKED.files[1], PACKED)


def test_no_mirror_for_an_archive(mirrors):
    with pytest.raises(DataError, match=r"one\.bin: expected it in .*no mirror gave set\.tar\.gz \(no network\)"):
        obtain(PACKED.files[0], PACKED)


def test_verified_packed_unpacked_and_packed_anew(tmp_path):
    path = tmp_path / "some"
    for content in (CONTENT, b"some data" * 1000, gzip.compress(b"some data" * 1000, 1, mtime=7)):
        path.write_bytes(content)
        assert is_verified(path, FILE)
    path.write_bytes(b"some data" * 999)
    assert not is_verified(path, FILE)
    path.write_bytes(ARCHIVE)
    assert is_verified(path, PACKED.archive or FILE)
    assert not is_verified(path, DataFile("some"))
