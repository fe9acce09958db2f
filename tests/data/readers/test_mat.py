import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from formats import mat, pixels
from raising import raises_about
from torchcaps.data.readers.mat import read_mat
from torchcaps.errors import DataError

VALUES = {
    "X": pixels(4, 5, 3, 2),
    "words": "some text",
    "y": np.array([[10.0], [3.5]]),
    "small": np.array([[7]], np.uint8),
    "data": {"text": "words", "image": pixels(6, 3), "inner": {"deep": np.arange(6, dtype=np.int32).reshape(2, 3)}},
}
NAMES = ("X", "y", "small", "data")
MAX_BYTES = 1_000_000


def read(tmp_path: Path, content: bytes, names=NAMES, max_bytes=MAX_BYTES) -> dict:
    path = tmp_path / "file.mat"
    path.write_bytes(content)
    return read_mat(path, names, max_bytes)


def check(found: dict) -> None:
    for name in ("X", "y", "small"):
        assert np.array_equal(found[name], VALUES[name])
        assert found[name].shape == VALUES[name].shape
    assert np.array_equal(found["data"]["image"], VALUES["data"]["image"])
    assert np.array_equal(found["data"]["inner"]["deep"], VALUES["data"]["inner"]["deep"])
    assert found["data"]["text"] is None


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_and_structs(tmp_path, packed, order):
    check(read(tmp_path, mat(VALUES, packed=packed, order=order)))


@pytest.mark.parametrize("packed", [True, False])
def test_files_of_scipy(tmp_path, packed):
    scipy_io = pytest.importorskip("scipy.io")
    cells = np.array([[1, "two"]], dtype=object)
    scipy_io.savemat(tmp_path / "theirs.mat", {"cells": cells, **VALUES}, do_compression=packed)
    check(read_mat(tmp_path / "theirs.mat", NAMES, MAX_BYTES))


def test_test_writer(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    (tmp_path / "ours.mat").write_bytes(mat(VALUES))
    found = scipy_io.loadmat(tmp_path / "ours.mat")
    assert np.array_equal(found["X"], VALUES["X"])
    assert np.array_equal(found["data"]["image"][0, 0], VALUES["data"]["image"])


def test_requested_names_only(tmp_path):
    assert list(read(tmp_path, mat(VALUES), ("small",))) == ["small"]


def test_missing_variable(tmp_path):
    with raises_about(DataError, "file.mat", "got no variable 'z'", "download it again"):
        read(tmp_path, mat(VALUES), ("z",))


@pytest.mark.parametrize("packed", [True, False])
def test_truncated(tmp_path, packed):
    content = mat({"X": pixels(4, 5), "y": np.array([[1.0]])}, packed=packed)
    for size in range(0, len(content) - 8, 7):
        with raises_about(DataError, "file.mat"):
            read(tmp_path, content[:size], ("X", "y"))


def other_field() -> bytes:
    """A struct whose field is not an array."""
    content = bytearray(mat({"X": {"a": pixels(4, 5)}}, packed=False))
    content[content.rindex(b"\x0e\0\0\0")] = 13
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no version 5 header"),
        (bytes(200), "no version 5 header"),
        (b"MATLAB 7.3 MAT-file".ljust(126) + b"IM", "version 7.3; save it with -v7"),
        (other_field(), "an element of type 13 for the field 'a'"),
    ],
)
def test_other_files(tmp_path, content, reason):
    with raises_about(DataError, "file.mat", reason):
        read(tmp_path, content, ("X",))


def broken(offset: int, value: int) -> bytes:
    """A file with one uint8 array of 4 x 5, and one number in it replaced."""
    content = bytearray(mat({"X": pixels(4, 5)}, packed=False))
    struct.pack_into("<I", content, 128 + offset, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (broken(12, 8)[:140], "4 of 8 bytes (truncated)"),
        (broken(4, 4), "an element of 8 bytes with 4 left"),
        (broken(8, 9), "an element of type 9 with 8 bytes in the head of an array"),
        (broken(12, 100_000), "an element of 100,000 bytes with "),
        (broken(8, 0x00090006), "a short element of more than four bytes"),
        (broken(8, 0x00040006), "4 bytes of flags"),
        (broken(32, 0xFFFFFFFF), "an array of sizes [-1, 5]"),
        (broken(32, 400), "20 bytes for an array of sizes [400, 5], expected 2,000"),
        (broken(48, 77), "values of type 77"),
        (broken(24, 0x00030005), "3 bytes of sizes"),
        (mat({"X": {"a" * 31: {"b": {"c": {"d": {"e": pixels(2, 2)}}}}}}), "structs of sizes"),
    ],
)
def test_damage(tmp_path, content, reason):
    with raises_about(DataError, "file.mat", reason):
        read(tmp_path, content, ("X",))


def test_struct_names(tmp_path):
    content = mat({"X": {"a": pixels(2, 2)}}, packed=False).replace(
        struct.pack("<2I", 4 << 16 | 5, 32), struct.pack("<2I", 4 << 16 | 5, 31)
    )
    with raises_about(DataError, "file.mat", "32 bytes of field names of 31"):
        read(tmp_path, content, ("X",))


def bomb(size: int) -> bytes:
    """A compressed column of `size` zeros, a thousand times larger than its file."""
    content = mat({"X": np.zeros((size, 1), np.uint8)})
    assert len(content) < size / 500
    return content


def test_bomb(tmp_path):
    content = bomb(100_000_000)
    tracemalloc.start()
    with raises_about(DataError, "file.mat", "100,000,000", "at most 1,000,000"):
        read(tmp_path, content, ("X",))
    with raises_about(DataError, "no variable 'z'"):
        read(tmp_path, content, ("z",))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_damaged_compression(tmp_path):
    content = bytearray(mat({"X": pixels(40, 5)}))
    for place in range(128 + 8, len(content), 5):
        content[place] ^= 0xFF
        with raises_about(DataError, "file.mat"):
            read(tmp_path, bytes(content), ("X",))
        content[place] ^= 0xFF
    longer = zlib.compress(zlib.decompress(content[136:]) + b"more")
    with raises_about(DataError, "a compressed element of another size than announced"):
        read(tmp_path, bytes(content[:128]) + struct.pack("<2I", 15, len(longer)) + longer, ("X",))
    short = zlib.compress(b"few")
    head = mat({})
    with raises_about(DataError, "file.mat"):
        read(tmp_path, head + struct.pack("<2I", 15, len(short)) + short, ("X",))


def test_complex_and_empty_arrays(tmp_path):
    content = bytearray(mat({"X": pixels(4, 5), "y": np.array([[1.0, 2.0]])}, packed=False))
    content[128 + 17] |= 0x08
    assert list(read(tmp_path, bytes(content), ("y",))) == ["y"]
    with raises_about(DataError, "no variable 'X'"):
        read(tmp_path, bytes(content), ("X",))
