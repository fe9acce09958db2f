import gzip
import io
import tracemalloc

import pytest

from raising import raises_about
from torchcaps.data.readers._limited_io import open_unzipped, read_at_most, read_file
from torchcaps.errors import DataError


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_gzipped(tmp_path, pack):
    path = tmp_path / "file.gz"
    path.write_bytes(pack(b"contents"))
    with open_unzipped(path) as file:
        assert file.read() == b"contents"
    assert read_file(path, 8) == b"contents"
    with raises_about(DataError, "file.gz", "got more", "download it again"):
        read_file(path, 7)


def test_damaged_and_missing(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"contents")[:-4])
    with raises_about(DataError, "cut.gz", "got a damaged one"):
        read_file(tmp_path / "cut.gz", 100)
    with raises_about(DataError, "none", "No such file"):
        read_file(tmp_path / "none", 100)


def test_memory_of_a_short_file():
    tracemalloc.start()
    assert read_at_most(io.BytesIO(b"few"), 10**15) == b"few"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
