import gzip
import io
import tracemalloc

import pytest

from torchcaps.data._bounded import opened, take, take_all
from torchcaps.errors import DataError


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_packed_or_not_whatever_the_name(tmp_path, pack):
    path = tmp_path / "file.gz"
    path.write_bytes(pack(b"contents"))
    with opened(path) as file:
        assert file.read() == b"contents"
    assert take_all(path, 8) == b"contents"
    with pytest.raises(DataError, match=r"file\.gz: expected at most 7 bytes, got more .*fetch it again"):
        take_all(path, 7)


def test_damaged_and_missing(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"contents")[:-4])
    with pytest.raises(DataError, match=r"cut\.gz: expected a whole gzip file, got a damaged one"):
        take_all(tmp_path / "cut.gz", 100)
    with pytest.raises(DataError, match=r"none: expected a file that can be read, got No such file"):
        take_all(tmp_path / "none", 100)


def test_memory_grows_with_what_comes():
    tracemalloc.start()
    assert take(io.BytesIO(b"few"), 10**15) == b"few"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
