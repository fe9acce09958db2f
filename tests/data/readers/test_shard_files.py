from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limits import memory_limit
from raising import raises_about
from torchcaps.data import load_shards
from torchcaps.data.readers.shard_files import INDEX, Shard, read_table
from torchcaps.errors import DataError


def png(side: int = 4) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.zeros((side, side), np.uint8)).save(content, "PNG")
    return content.getvalue()


def member(name: str, content: bytes = b"0", kind: bytes = tarfile.REGTYPE) -> Callable[[tarfile.TarFile], None]:
    def add(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
        info.size = len(content) if kind == tarfile.REGTYPE else 0
        archive.addfile(info, io.BytesIO(content))

    return add


def with_shard(folder: Path, *adds: Callable[[tarfile.TarFile], None], count: int = 1) -> Path:
    """A folder whose only shard has these members."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "bad.tar", "w") as archive:
        for add in adds:
            add(archive)
    entry = {"file": "bad.tar", "count": count, "bytes": (folder / "bad.tar").stat().st_size}
    index = {"class_names": ["a", "b"], "image_shape": [1, 4, 4], "splits": {"train": [entry]}}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(("adds", "got"), [
    ((member("../climbs.png"),), "got '../climbs.png'"),
    ((member("/etc/passwd.png"),), "got '/etc/passwd.png'"),
    ((member("a/b.png"),), "got 'a/b.png'"),
    ((member("0.png", kind=tarfile.SYMTYPE),), "got '0.png'"),
    ((member("0.png", kind=tarfile.LNKTYPE),), "got '0.png'"),
    ((member("0.png", kind=tarfile.FIFOTYPE),), "got '0.png'"),
    ((member("0.png"),), "got 1 images and 0 labels"),
    ((member("0.png"), member("0.cls"), member("1.png"), member("1.cls")), "got 2 images"),
    ((member("0.png"), member("0.cls", b"dog")), "got invalid literal"),
    ((member("0.png"), member("0.cls", b"2")), "labels from 0 to 1, got 2 to 2"),
])  # fmt: skip
def test_wrong_members(tmp_path, adds, got):
    data = load_shards("train", with_shard(tmp_path / "odd", *adds))
    with raises_about(DataError, "bad.tar", got):
        data.batch([0])


def test_huge_member(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.data.readers.shard_files.MAX_MEMBER", 10)
    data = load_shards("train", with_shard(tmp_path / "odd", member("0.png", b"x" * 11)))
    with raises_about(DataError, "bad.tar", "at most 10", "got 11", "'0.png'"):
        data.batch([0])


@pytest.mark.parametrize(("content", "got"), [
    (b"no picture", "expected an image in one of PNG"), (png(5), "5x5"),
])  # fmt: skip
def test_wrong_image(tmp_path, content, got):
    data = load_shards("train", with_shard(tmp_path / "odd", member("0.cls"), member("0.png", content)))
    with raises_about(DataError, "bad.tar", got):
        data.batch([0])


@pytest.mark.parametrize("length", [100, 600, 1536, 2000])
def test_truncated_shard(tmp_path, length):
    folder = with_shard(tmp_path / "odd", member("0.cls"), member("0.png", b"x" * 5000))
    (folder / "bad.tar").write_bytes((folder / "bad.tar").read_bytes()[:length])
    index = json.loads((folder / INDEX).read_text())
    index["splits"]["train"][0]["bytes"] = length
    (folder / INDEX).write_text(json.dumps(index))
    with raises_about(DataError, "bad.tar"):
        load_shards("train", folder).batch([0])


@pytest.mark.parametrize(("change", "got"), [
    ({"splits": {"train": [{"file": "../a.tar", "count": 1, "bytes": 1}]}}, "file names"),
    ({"splits": {"train": [{"file": "a.tar", "count": -1, "bytes": 1}]}}, "file names"),
    ({"splits": {"train": [{"file": "a.tar"}]}}, "KeyError('count')"),
    ({"splits": 3}, "got AttributeError"),
    ({"image_shape": [1, 4]}, "got ValueError"),
    ({"image_shape": [1, 40_000, 40_000]}, "4,000,000 pixels"),
    ({"image_shape": [2, 4, 4]}, "shape"),
])  # fmt: skip
def test_wrong_index(tmp_path, change, got):
    folder = with_shard(tmp_path / "odd", member("0.cls"), member("0.png"))
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, **change}))
    with raises_about(DataError, "index.json", got):
        load_shards("train", folder)


def test_missing_index(tmp_path):
    with raises_about(DataError, "index.json", "no such file"):
        load_shards("train", tmp_path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("size", [2**31, 2**62, 2**70])
def test_header_that_announces_more_than_memory(tmp_path: Path, kind: bytes, size: int) -> None:
    info = tarfile.TarInfo("a")
    info.type, info.size = kind, size
    path = tmp_path / "bad.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    with raises_about(DataError, path, f"a header of {size:,}"[:22]), memory_limit(10**9):
        read_table(Shard(path, 1, 9), 2)
