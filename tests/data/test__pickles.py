import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from formats import pixels, python2_batch
from torchcaps.data._pickles import read_pickle
from torchcaps.errors import DataError

IMAGES = pixels(3, 3, 32, 32)
MOST = 1_000_000
REFUSED = "expected a pickle of arrays and plain containers, got"


def read(tmp_path: Path, content: bytes) -> dict:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return read_pickle(path, MOST)


def test_what_python_2_wrote(tmp_path):
    found = read(tmp_path, python2_batch(IMAGES, {"labels": [3, 1, 4]}))
    assert np.array_equal(found["data"], IMAGES.reshape(3, -1))
    assert found["labels"] == [3, 1, 4]
    assert found["filenames"] == [b"picture_0.png", b"picture_1.png", b"picture_2.png"]


def test_our_writer_is_right():
    found = pickle.loads(python2_batch(IMAGES, {"labels": [3, 1, 4]}), encoding="bytes")
    assert np.array_equal(found[b"data"], IMAGES.reshape(3, -1))
    assert found[b"labels"] == [3, 1, 4]


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_python_3_writes(tmp_path, protocol, order):
    array = np.asarray(pixels(5, 7), order=order)
    found = read(tmp_path, pickle.dumps({"data": array, b"labels": [1, 2], "name": "batch"}, protocol))
    assert np.array_equal(found["data"], array)
    assert found["labels"] == [1, 2]


class Evil:
    """A pickle that would make a file when it is read in the ordinary way."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_run(tmp_path, protocol):
    mark = tmp_path / "was here"
    content = pickle.dumps({"data": Evil(os.system, f"touch '{mark}'")}, protocol)
    # The trap works, so that the test can fail.
    pickle.loads(content)
    assert mark.exists()
    mark.unlink()
    with pytest.raises(DataError, match=rf"batch: {REFUSED} .*(posix|nt)\.?.*; remove it and fetch it again"):
        read(tmp_path, content)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"x": Evil(eval, "1")}, 2),
        pickle.dumps({"x": Evil(getattr, [], "append")}, 2),
        pickle.dumps({"x": OrderedDict(a=1)}, 2),
        pickle.dumps({"x": np.arange(3).dtype.type(3)}, 2),
        # Old ways to make an instance, a registered extension, a persistent one.
        b"(dS'x'\n(ios\nsystem\nS'true'\ntRs.",
        b"\x80\x02}U\x01x(cos\nsystem\nU\x04trueos.",
        b"\x80\x02}U\x01x\x82\x01s.",
        b"(dS'x'\nPsome\ns.",
        # A class by its dotted name, and names that are put together.
        b"\x80\x04}\x8c\x01x\x8c\x05numpy\x8c\x0endarray.tofile\x93s.",
    ],
)
def test_names_and_instructions_that_are_not_allowed(tmp_path, content):
    with pytest.raises(DataError, match=f"{REFUSED} the (name|instruction) .*, which is not allowed"):
        read(tmp_path, content)


def test_a_call_that_is_not_for_arrays(tmp_path):
    with pytest.raises(DataError, match=f"{REFUSED} a call of ndarray"):
        read(tmp_path, b"\x80\x02}U\x01xcnumpy\nndarray\n(J\xff\xff\xff\x7ftRs.")
    with pytest.raises(DataError, match=f"{REFUSED} a call of encode"):
        read(tmp_path, b"\x80\x02}U\x01xc_codecs\nencode\n(X\x01\x00\x00\x00xX\x03\x00\x00\x00hextRs.")


def test_a_memo_that_would_fill_all_memory(tmp_path):
    with pytest.raises(DataError, match=f"{REFUSED} the memo number 2130706432"):
        read(tmp_path, b"\x80\x02}r" + struct.pack("<I", 0x7F000000) + b".")


def test_tuples_that_would_take_forever(tmp_path):
    nested = b"\x80\x02}K\x01\x85q\x01" + b"".join(b"h\x01h\x01\x86q\x01" for _ in range(60)) + b"K\x01s."
    with pytest.raises(DataError, match=f"{REFUSED} a tuple used twice"):
        read(tmp_path, nested)


def array(shape: tuple, dtype: str, content: bytes) -> bytes:
    """A pickle of an array with any of this in it, whether it fits or not."""
    state = (1, shape, np.dtype(dtype), False, content)
    reconstruct = np.zeros(1).__reduce__()[0]
    make = Evil(reconstruct, np.ndarray, (0,), b"b")
    make.__class__ = type("Made", (Evil,), {"__reduce__": lambda self: (self.call, self.args, state)})
    return pickle.dumps({"data": make}, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (array((2, 2), "i8", bytes(32)), "an array that is not of bytes"),
        (array((2, 2), "O", bytes(4)), "an array that is not of bytes"),
        (array((2, 3), "u1", bytes(4)), r"an array of \(2, 3\) with 4 bytes"),
        (array((2**40, 0), "u1", b""), "an array with an impossible shape"),
        (array((-2, -2), "u1", bytes(4)), "an array with an impossible shape"),
    ],
)
def test_arrays_that_cannot_be(tmp_path, content, reason):
    with pytest.raises(DataError, match=f"{REFUSED} {reason}"):
        read(tmp_path, content)


@pytest.mark.parametrize("cut", [1, 20, 9000])
def test_truncated(tmp_path, cut):
    with pytest.raises(DataError, match=f"batch: {REFUSED} .*fetch it again"):
        read(tmp_path, python2_batch(IMAGES, {"labels": [3, 1, 4]})[:-cut])


def test_not_a_dict(tmp_path):
    with pytest.raises(DataError, match=f"{REFUSED} a list in the place of a dict"):
        read(tmp_path, pickle.dumps([1, 2]))


def test_too_large(tmp_path):
    with pytest.raises(DataError, match=r"batch: expected at most 1,000,000 bytes, got more"):
        read(tmp_path, bytes(MOST + 1))
