from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.data import load_shards
from torchcaps.data._shard_files import INDEX
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
    index = {"class_names": ["a", "b"], "image_shape": [1, 4, 4], "parts": {"train": [entry]}}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(("adds", "words"), [
    ((member("../climbs.png"),), r"expected plain files alone, got the member '\.\./climbs\.png'"),
    ((member("/etc/passwd.png"),), "expected plain files alone, got the member"),
    ((member("a/b.png"),), "expected plain files alone, got the member 'a/b.png'"),
    ((member("0.png", kind=tarfile.SYMTYPE),), "expected plain files alone, got the member '0.png'"),
    ((member("0.png", kind=tarfile.LNKTYPE),), "expected plain files alone, got the member '0.png'"),
    ((member("0.png", kind=tarfile.FIFOTYPE),), "expected plain files alone, got the member '0.png'"),
    ((member("0.png"),), "expected 1 images with a class number each, got 1 images and 0 class numbers"),
    ((member("0.png"), member("0.cls"), member("1.png"), member("1.cls")), "expected 1 images .* got 2 images"),
    ((member("0.png"), member("0.cls", b"dog")), "expected a whole tar archive, got invalid literal"),
    ((member("0.png"), member("0.cls", b"2")), "expected class numbers from 0 to 1, got others"),
])  # fmt: skip
def test_odd_members(tmp_path, adds, words):
    data = load_shards("train", with_shard(tmp_path / "odd", *adds))
    with pytest.raises(DataError, match=rf"bad\.tar: {words}"):
        data.batch([0])


def test_a_huge_member(tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.data._shard_files.MAX_MEMBER", 10)
    data = load_shards("train", with_shard(tmp_path / "odd", member("0.png", b"x" * 11)))
    with pytest.raises(DataError, match=r"bad\.tar: expected members of at most 10 bytes, got '0\.png' with 11"):
        data.batch([0])


@pytest.mark.parametrize(("content", "words"), [
    (b"no picture", "cannot identify image file"), (png(5), "5x5 pixels where 4x4 were promised"),
])  # fmt: skip
def test_images_that_are_none_or_of_another_size(tmp_path, content, words):
    data = load_shards("train", with_shard(tmp_path / "odd", member("0.cls"), member("0.png", content)))
    with pytest.raises(DataError, match=rf"bad\.tar: expected an image at byte 1536, got .*{words}"):
        data.batch([0])


@pytest.mark.parametrize("length", [100, 600, 1536, 2000])
def test_a_shard_cut_short_that_its_index_agrees_with(tmp_path, length):
    folder = with_shard(tmp_path / "odd", member("0.cls"), member("0.png", b"x" * 5000))
    (folder / "bad.tar").write_bytes((folder / "bad.tar").read_bytes()[:length])
    index = json.loads((folder / INDEX).read_text())
    index["parts"]["train"][0]["bytes"] = length
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"bad\.tar: expected"):
        load_shards("train", folder).batch([0])


@pytest.mark.parametrize(("change", "words"), [
    ({"parts": {"train": [{"file": "../a.tar", "count": 1, "bytes": 1}]}}, "expected names of files beside it"),
    ({"parts": {"train": [{"file": "a.tar", "count": -1, "bytes": 1}]}}, "expected names of files beside it"),
    ({"parts": {"train": [{"file": "a.tar"}]}}, r"got KeyError\('count'\)"),
    ({"parts": 3}, "got AttributeError"),
    ({"image_shape": [1, 4]}, "got ValueError"),
    ({"image_shape": [2, 4, 4]}, "expected names of files beside it, counts and a shape"),
])  # fmt: skip
def test_an_index_that_is_none(tmp_path, change, words):
    folder = with_shard(tmp_path / "odd", member("0.cls"), member("0.png"))
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, **change}))
    with pytest.raises(DataError, match=rf"index\.json: .*{words}"):
        load_shards("train", folder)


def test_a_folder_without_an_index(tmp_path):
    with pytest.raises(DataError, match=r"index\.json: expected the index of a folder of shards, got no such file"):
        load_shards("train", tmp_path)
