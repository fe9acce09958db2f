import gzip
import struct

import numpy as np
import pytest

from raising import raises_about
from torchcaps.data.readers.norb_matrix import matrix_chunks, read_matrix
from torchcaps.errors import DataError

MAGIC = {"u1": 0x1E3D4C55, "<i4": 0x1E3D4C54}


def matrix(array: np.ndarray, magic: int | None = None) -> bytes:
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    kind = "u1" if array.dtype == np.uint8 else "<i4"
    head = struct.pack(f"<{2 + len(sizes)}i", MAGIC[kind] if magic is None else magic, array.ndim, *sizes)
    return head + array.astype(kind).tobytes()


BYTES = np.arange(120, dtype=np.uint8).reshape(5, 2, 3, 4)
NUMBERS = np.arange(-3, 9, dtype=np.int32).reshape(6, 2)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("array", "dtype"), [(BYTES, "u1"), (NUMBERS, "<i4"), (NUMBERS[:, 0], "<i4")])
def test_plain_and_gzipped(tmp_path, pack, array, dtype):
    path = tmp_path / "some.mat"
    path.write_bytes(pack(matrix(array)))
    assert np.array_equal(read_matrix(path, dtype, array.ndim), array)


def test_chunks(tmp_path):
    path = tmp_path / "some.mat"
    path.write_bytes(matrix(BYTES))
    chunks = list(matrix_chunks(path, "u1", 4, rows=2))
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert np.array_equal(np.concatenate(chunks), BYTES)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (matrix(NUMBERS), "got 0x1e3d4c54"),
        (matrix(BYTES, magic=-1), "got 0xffffffff"),
        (matrix(BYTES[0]), "4 axes, got 3"),
        (matrix(BYTES[:0]), "got [0, 2, 3, 4]"),
        (matrix(BYTES)[:6], "8 more bytes, got 6"),
        (matrix(BYTES)[:-1], "120 more bytes, got 119"),
        (matrix(BYTES) + b"x", "(5, 2, 3, 4) values, got more"),
        (gzip.compress(matrix(BYTES))[:-9], "got a damaged one"),
        (b"", "8 more bytes, got 0"),
    ],
)
def test_damage(tmp_path, content, got):
    path = tmp_path / "bad.mat"
    path.write_bytes(content)
    with raises_about(DataError, path, got):
        read_matrix(path, "u1", 4)


def test_folder(tmp_path):
    with raises_about(DataError, tmp_path, "not a regular file"):
        read_matrix(tmp_path, "u1", 4)


@pytest.mark.parametrize(("axes", "limit"), [(1, "16,000,000"), (4, "450,000,000")])
def test_huge_header(tmp_path, axes, limit):
    sizes = [2**30, 1, 1] if axes == 1 else [2**14, 2, 2**10, 2**10]
    dtype, magic = ("<i4", 0x1E3D4C54) if axes == 1 else ("u1", 0x1E3D4C55)
    path = tmp_path / "liar.mat"
    path.write_bytes(struct.pack(f"<{2 + len(sizes)}i", magic, axes, *sizes))
    with raises_about(DataError, path, f"at most {limit}"):
        read_matrix(path, dtype, axes) if axes == 1 else list(matrix_chunks(path, dtype, axes, rows=512))
