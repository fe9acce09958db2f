import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile

import pytest

from formats import tar_of, zip_of
from torchcaps.data import _archives
from torchcaps.data._archives import unpack
from torchcaps.errors import DataError

MEMBERS = {"a/one": b"first" * 100, "two": b"second", "other": b"not asked for"}
WANTED = {"a/one": ("1", 1000), "two": ("2", 1000)}


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
def test_what_is_asked_for_comes_under_our_names(tmp_path, target, pack):
    assert unpack(put(tmp_path, pack(MEMBERS)), WANTED, target) == [target / "1", target / "2"]
    assert (target / "1").read_bytes() == MEMBERS["a/one"]
    assert sorted(path.name for path in target.iterdir()) == ["1", "2"]
    assert list(target.parent.iterdir()) == [target]


def clean(tmp_path, target) -> bool:
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    return left == ["archive"] and not target.exists()


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "..\\evil", "C:\\evil", "\\evil"])
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_an_archive_that_climbs_out_is_refused(tmp_path, target, pack, name):
    archive = put(tmp_path, pack({**MEMBERS, name: b"evil"}))
    with pytest.raises(DataError, match=r"archive: expected members inside .*evil' \(climbs out of it\); remove it"):
        unpack(archive, WANTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize(
    "content",
    [
        tar_of({"a/one": link("a/one", "/etc/passwd"), "two": b"second"}),
        tar_of({"two": b"second", "a/one": link("a/one", "two", tarfile.LNKTYPE)}),
        linked_zip(),
    ],
)
def test_links_are_not_followed(tmp_path, target, content):
    archive = put(tmp_path, content)
    with pytest.raises(DataError, match="archive: expected 'a/one' to be a file, got a link or folder; get it from"):
        unpack(archive, WANTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_bomb_is_not_unpacked(tmp_path, target, pack):
    archive = put(tmp_path, pack({**MEMBERS, "two": bytes(5_000_000)}))
    with pytest.raises(DataError, match="archive: expected 'two' to hold at most 1,000 bytes, got more; get it from"):
        unpack(archive, WANTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_bomb_in_a_header_is_not_unpacked(tmp_path, target, kind):
    info = tarfile.TarInfo("a/one")
    info.type, info.size = kind, 100_000_000
    archive = put(tmp_path, gzip.compress(info.tobuf() + bytes(100_000_000), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"archive: expected a whole archive, got a damaged one"):
        unpack(archive, WANTED, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000
    assert clean(tmp_path, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_member_is_missing(tmp_path, target, pack):
    archive = put(tmp_path, pack({"two": b"second"}))
    with pytest.raises(DataError, match="archive: expected it to hold 'a/one', got no such member; fetch it again"):
        unpack(archive, WANTED, target)
    assert clean(tmp_path, target)


@pytest.mark.parametrize("content", [zip_of(MEMBERS)[:-30], tar_of(MEMBERS)[:-30], b"no archive", b""])
def test_a_damaged_archive(tmp_path, target, content):
    archive = put(tmp_path, content)
    with pytest.raises(
        DataError, match=r"archive: expected a whole (archive|gzip file), got a damaged one .*fetch it again"
    ):
        unpack(archive, WANTED, target)
    assert clean(tmp_path, target)


def test_an_encrypted_archive(tmp_path, target):
    content = bytearray(zip_of(MEMBERS))
    # The lowest bit of the flags, in the member's own header and in the directory at the end.
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match=r"archive: expected an archive that can be unpacked, got .*encrypted"):
        unpack(put(tmp_path, content), WANTED, target)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_too_many_members(tmp_path, target, pack, monkeypatch):
    monkeypatch.setattr(_archives, "_MOST_MEMBERS", 1)
    with pytest.raises(DataError, match="archive: expected at most 1 members, got more; get it from its authors"):
        unpack(put(tmp_path, pack(MEMBERS)), WANTED, target)


def test_what_was_there_stays_when_the_archive_is_bad(tmp_path, target):
    target.mkdir(parents=True)
    (target / "1").write_bytes(b"old")
    with pytest.raises(DataError, match="expected it to hold"):
        unpack(put(tmp_path, zip_of({"two": b"second"})), WANTED, target)
    assert [(path.name, path.read_bytes()) for path in target.iterdir()] == [("1", b"old")]
