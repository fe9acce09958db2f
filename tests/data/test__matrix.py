import gzip
import struct

import numpy as np
import pytest

from torchcaps.data._matrix import matrix_chunks, read_matrix
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
def test_reads_plain_and_gzipped(tmp_path, pack, array, dtype):
    path = tmp_path / "some.mat"
    path.write_bytes(pack(matrix(array)))
    assert np.array_equal(read_matrix(path, dtype, array.ndim), array)


def test_chunks_make_up_the_whole(tmp_path):
    path = tmp_path / "some.mat"
    path.write_bytes(matrix(BYTES))
    chunks = list(matrix_chunks(path, "u1", 4, rows=2))
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert np.array_equal(np.concatenate(chunks), BYTES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (matrix(NUMBERS), "expected a binary matrix with magic 0x1e3d4c55, got 0x1e3d4c54"),
        (matrix(BYTES, magic=-1), "expected a binary matrix with magic 0x1e3d4c55, got 0xffffffff"),
        (matrix(BYTES[0]), "expected a matrix with 4 axes, got 3"),
        (matrix(BYTES[:0]), r"expected a matrix that is not empty, got sizes \[0, 2, 3, 4\]"),
        (matrix(BYTES)[:6], r"expected 8 more bytes, got 6 \(truncated\); fetch it again"),
        (matrix(BYTES)[:-1], r"expected 120 more bytes, got 119 \(truncated\); fetch it again"),
        (matrix(BYTES) + b"x", r"expected \(5, 2, 3, 4\) values, got more \(damaged\); fetch it again"),
        (gzip.compress(matrix(BYTES))[:-9], "expected a whole gzip file, got a damaged one"),
        (b"", r"expected 8 more bytes, got 0 \(truncated\)"),
    ],
)
def test_damaged_files(tmp_path, content, words):
    path = tmp_path / "bad.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.mat: {words}"):
        read_matrix(path, "u1", 4)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DataError, match="expected a file that can be read, got Is a directory"):
        read_matrix(tmp_path, "u1", 4)


@pytest.mark.parametrize(("axes", "most"), [(1, "16,000,000"), (4, "450,000,000")])
def test_a_header_that_announces_too_much(tmp_path, axes, most):
    sizes = [2**30, 1, 1] if axes == 1 else [2**14, 2, 2**10, 2**10]
    dtype, magic = ("<i4", 0x1E3D4C54) if axes == 1 else ("u1", 0x1E3D4C55)
    path = tmp_path / "liar.mat"
    path.write_bytes(struct.pack(f"<{2 + len(sizes)}i", magic, axes, *sizes))
    with pytest.raises(DataError, match=rf"liar\.mat: expected at most {most} bytes, got a header that announces"):
        read_matrix(path, dtype, axes) if axes == 1 else list(matrix_chunks(path, dtype, axes, rows=512))
