import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile

import pytest

from formats import tar_of, zip_of
from raising import raises_about
from torchcaps.data.readers import archives
from torchcaps.data.readers.archives import unpack
from torchcaps.errors import DataError

MEMBERS = {"a/one": b"first" * 100, "two": b"second", "other": b"not requested"}
REQUESTED = {"a/one": ("1", 1000), "two": ("2", 1000)}


@pytest.fixture
def target(tmp_path):
    return tmp_path / "cache" / "set"


def put(tmp_path, content):
    path = tmp_path / "archive"
    path.write_bytes(content)
    return path


def link(name: str, where: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, where
    return info


def linked_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as box:
        info = zipfile.ZipInfo("a/one")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        box.writestr(info, "/etc/passwd")
        box.writestr("two", "second")
    return file.getvalue()


@pytest.mark.parametrize("pack", [zip_of, tar_of, lambda members: gzip.decompress(tar_of(members))])
def test_unpack(tmp_path, target, pack):
    assert unpack(put(tmp_path, pack(MEMBERS)), REQUESTED, target) == [target / "1", target / "2"]
    assert (target / "1").read_bytes() == MEMBERS["a/one"]
    assert sorted(path.name for path in target.iterdir()) == ["1", "2"]
    assert list(target.parent.iterdir()) == [target]


def clean(tmp_path, target) -> bool:
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    return left == ["archive"] and not target.exists()


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "..\\evil", "C:\\evil", "\\evil"])
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_member_outside_the_archive(tmp_path, target, pack, name):
    archive = put(tmp_path, pack({**MEMBERS, name: b"evil"}))
    with raises_about(DataError, "archive", f"got '{name}'"):
        unpack(archive, REQUESTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize(
    "content",
    [
        tar_of({"a/one": link("a/one", "/etc/passwd"), "two": b"second"}),
        tar_of({"two": b"second", "a/one": link("a/one", "two", tarfile.LNKTYPE)}),
        linked_zip(),
    ],
)
def test_links(tmp_path, target, content):
    archive = put(tmp_path, content)
    with raises_about(DataError, "archive", "got a link or folder"):
        unpack(archive, REQUESTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_bomb(tmp_path, target, pack):
    archive = put(tmp_path, pack({**MEMBERS, "two": bytes(5_000_000)}))
    with raises_about(DataError, "archive", "got more"):
        unpack(archive, REQUESTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_bomb_in_a_header(tmp_path, target, kind):
    info = tarfile.TarInfo("a/one")
    info.type, info.size = kind, 100_000_000
    archive = put(tmp_path, gzip.compress(info.tobuf() + bytes(100_000_000), 1))
    tracemalloc.start()
    with raises_about(DataError, "archive", "got a damaged one"):
        unpack(archive, REQUESTED, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000
    assert clean(tmp_path, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_missing_member(tmp_path, target, pack):
    archive = put(tmp_path, pack({"two": b"second"}))
    with raises_about(DataError, "archive", "'a/one'", "not in the archive"):
        unpack(archive, REQUESTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("content", [zip_of(MEMBERS)[:-30], tar_of(MEMBERS)[:-30], b"no archive", b""])
def test_damaged_archive(tmp_path, target, content):
    archive = put(tmp_path, content)
    with raises_about(DataError, "archive", "got a damaged one", "download it again"):
        unpack(archive, REQUESTED, target)
    assert clean(tmp_path, target)


def test_encrypted_archive(tmp_path, target):
    content = bytearray(zip_of(MEMBERS))
    # The lowest bit of the flags, in the header of the member and in the directory at the end.
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with raises_about(DataError, "archive", "encrypted"):
        unpack(put(tmp_path, content), REQUESTED, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_too_many_members(tmp_path, target, pack, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 1)
    with raises_about(DataError, "archive", "got more"):
        unpack(put(tmp_path, pack(MEMBERS)), REQUESTED, target)


def test_failure_keeps_existing_files(tmp_path, target):
    target.mkdir(parents=True)
    (target / "1").write_bytes(b"old")
    with raises_about(DataError, "archive", "'a/one'"):
        unpack(put(tmp_path, zip_of({"two": b"second"})), REQUESTED, target)
    assert [(path.name, path.read_bytes()) for path in target.iterdir()] == [("1", b"old")]
