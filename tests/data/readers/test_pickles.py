import gzip
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from formats import pixels, python2_batch
from raising import raises_about
from torchcaps.data.readers.pickles import read_pickle
from torchcaps.errors import DataError

IMAGES = pixels(3, 3, 32, 32)
MAX_BYTES = 1_000_000


def read(tmp_path: Path, content: bytes) -> dict:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return read_pickle(path, MAX_BYTES)


def test_python_2(tmp_path):
    found = read(tmp_path, python2_batch(IMAGES, {"labels": [3, 1, 4]}))
    assert np.array_equal(found["data"], IMAGES.reshape(3, -1))
    assert found["labels"] == [3, 1, 4]
    assert found["filenames"] == [b"picture_0.png", b"picture_1.png", b"picture_2.png"]


def test_test_writer():
    found = pickle.loads(python2_batch(IMAGES, {"labels": [3, 1, 4]}), encoding="bytes")
    assert np.array_equal(found[b"data"], IMAGES.reshape(3, -1))
    assert found[b"labels"] == [3, 1, 4]


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("order", ["C", "F"])
def test_python_3(tmp_path, protocol, order):
    array = np.asarray(pixels(5, 7), order=order)
    found = read(tmp_path, pickle.dumps({"data": array, b"labels": [1, 2], "name": "batch"}, protocol))
    assert np.array_equal(found["data"], array)
    assert found["labels"] == [1, 2]


class Evil:
    """An object whose pickle calls a function."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", range(6))
def test_code_does_not_run(tmp_path, protocol):
    mark = tmp_path / "was here"
    content = pickle.dumps({"data": Evil(os.system, f"touch '{mark}'")}, protocol)
    # An ordinary read runs the code, so the test can fail.
    pickle.loads(content)
    assert mark.exists()
    mark.unlink()
    with raises_about(DataError, tmp_path / "batch", "system" if protocol < 4 else "forbidden"):
        read(tmp_path, content)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"x": Evil(eval, "1")}, 2),
        pickle.dumps({"x": Evil(getattr, [], "append")}, 2),
        pickle.dumps({"x": OrderedDict(a=1)}, 2),
        pickle.dumps({"x": np.arange(3).dtype.type(3)}, 2),
        # Old instructions for instances, a registered extension, a persistent object.
        b"(dS'x'\n(ios\nsystem\nS'true'\ntRs.",
        b"\x80\x02}U\x01x(cos\nsystem\nU\x04trueos.",
        b"\x80\x02}U\x01x\x82\x01s.",
        b"(dS'x'\nPsome\ns.",
        # A class by its dotted name.
        b"\x80\x04}\x8c\x01x\x8c\x05numpy\x8c\x0endarray.tofile\x93s.",
    ],
)
def test_forbidden_names_and_instructions(tmp_path, content):
    with raises_about(DataError, tmp_path / "batch", "got the forbidden "):
        read(tmp_path, content)


def test_forbidden_calls(tmp_path):
    with raises_about(DataError, tmp_path / "batch", "got a call of ndarray"):
        read(tmp_path, b"\x80\x02}U\x01xcnumpy\nndarray\n(J\xff\xff\xff\x7ftRs.")
    with raises_about(DataError, tmp_path / "batch", "got a call of encode"):
        read(tmp_path, b"\x80\x02}U\x01xc_codecs\nencode\n(X\x01\x00\x00\x00xX\x03\x00\x00\x00hextRs.")


def test_huge_memo(tmp_path):
    with raises_about(DataError, tmp_path / "batch", "memo number 2130706432"):
        read(tmp_path, b"\x80\x02}r" + struct.pack("<I", 0x7F000000) + b".")


def test_nested_tuples(tmp_path):
    nested = b"\x80\x02}K\x01\x85q\x01" + b"".join(b"h\x01h\x01\x86q\x01" for _ in range(60)) + b"K\x01s."
    with raises_about(DataError, tmp_path / "batch", "a tuple used twice"):
        read(tmp_path, nested)


def array(shape: tuple, dtype: str, content: bytes) -> bytes:
    """A pickle of an array with this state, consistent or not."""
    state = (1, shape, np.dtype(dtype), False, content)
    reconstruct = np.zeros(1).__reduce__()[0]
    make = Evil(reconstruct, np.ndarray, (0,), b"b")
    make.__class__ = type("Made", (Evil,), {"__reduce__": lambda self: (self.call, self.args, state)})
    return pickle.dumps({"data": make}, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (array((2, 2), "i8", bytes(32)), "an array of another type"),
        (array((2, 2), "O", bytes(4)), "an array of another type"),
        (array((2, 3), "u1", bytes(4)), "an array of shape (2, 3) with 4 bytes"),
        (array((2**40, 0), "u1", b""), "an array with an impossible shape"),
        (array((-2, -2), "u1", bytes(4)), "an array with an impossible shape"),
    ],
)
def test_impossible_arrays(tmp_path, content, reason):
    with raises_about(DataError, tmp_path / "batch", reason):
        read(tmp_path, content)


@pytest.mark.parametrize("cut", [1, 20, 9000])
def test_truncated(tmp_path, cut):
    with raises_about(DataError, tmp_path / "batch"):
        read(tmp_path, python2_batch(IMAGES, {"labels": [3, 1, 4]})[:-cut])


def test_not_a_dict(tmp_path):
    with raises_about(DataError, tmp_path / "batch", "got a list"):
        read(tmp_path, pickle.dumps([1, 2]))


def test_too_large(tmp_path):
    with raises_about(DataError, "batch", "got more"):
        read(tmp_path, bytes(MAX_BYTES + 1))


def test_more_objects_than_a_batch_has(tmp_path):
    # Each pair of bytes is a list and a memo entry: together a hundred times their size.
    path = tmp_path / "batch"
    path.write_bytes(gzip.compress(b"\x80\x04](" + b"]\x94" * 1_100_000 + b"e.", 1))
    with raises_about(DataError, path, "2,000,000 instructions"):
        read_pickle(path, 10_000_000)
