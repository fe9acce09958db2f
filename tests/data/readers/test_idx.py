import gzip
import hashlib
import struct
import tracemalloc

import pytest
import torch

from raising import raises_about
from torchcaps.data.readers import idx as idx_module
from torchcaps.data.readers.idx import parse_idx, read_idx
from torchcaps.errors import DataError


def idx(*sizes: int, magic: int | None = None) -> bytes:
    content = torch.arange(torch.Size(sizes).numel()).to(torch.uint8).numpy().tobytes()
    return struct.pack(f">{1 + len(sizes)}I", 0x0800 + len(sizes) if magic is None else magic, *sizes) + content


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_gzipped(tmp_path, pack):
    path = tmp_path / "images.gz"
    path.write_bytes(pack(idx(3, 4, 5)))
    assert torch.equal(read_idx(path, 3), torch.arange(60).to(torch.uint8).view(3, 4, 5))


def test_tensor_is_writable():
    tensor = parse_idx(idx(4), 1, "here")
    tensor[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]


def test_checksum(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(4)))
    assert len(read_idx(path, 1, hashlib.sha256(idx(4)).hexdigest())) == 4
    with raises_about(DataError, "labels.gz", "sha256 000000000000"):
        read_idx(path, 1, "0" * 64)


@pytest.mark.parametrize("cut", [1, 12])
def test_truncated_gzip(tmp_path, cut):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(idx(4, 4, 4))[:-cut])
    with raises_about(DataError, "cut.gz", "got a damaged one", "download it again"):
        read_idx(path, 3)


def test_damaged_gzip(tmp_path):
    path = tmp_path / "flipped.gz"
    content = bytearray(gzip.compress(idx(4, 4, 4)))
    content[20] ^= 255
    path.write_bytes(content)
    with raises_about(DataError, "flipped.gz"):
        read_idx(path, 3)


def test_folder(tmp_path):
    with raises_about(DataError, tmp_path, "not a regular file"):
        read_idx(tmp_path, 3)


def test_too_short_for_a_header():
    with raises_about(DataError, "here", "got 5 bytes"):
        parse_idx(idx(4)[:5], 1, "here")


@pytest.mark.parametrize("magic", [0x0803, 0x0D01, 0x01080000])
def test_wrong_magic(magic):
    with raises_about(DataError, "here", f"{magic:#010x}"):
        parse_idx(idx(4, magic=magic), 1, "here")


@pytest.mark.parametrize(("content", "got"), [(idx(4)[:-1], 3), (idx(4) + b"x", "more")])
def test_wrong_number_of_bytes(content, got):
    with raises_about(DataError, "here", "expected 4", f"got {got}"):
        parse_idx(content, 1, "here")


def test_empty_array():
    with raises_about(DataError, "here", "got [0, 4294967295, 2]"):
        parse_idx(struct.pack(">4I", 0x0803, 0, 2**32 - 1, 2), 3, "here")


def test_huge_header():
    with raises_about(DataError, "here", "4,294,967,295"):
        parse_idx(struct.pack(">2I", 0x0801, 2**32 - 1), 1, "here")


def test_gzip_bomb(tmp_path):
    # 100 MB of zeros in 100 kB, after a header of four bytes.
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(idx(4) + bytes(100_000_000), 1))
    tracemalloc.start()
    with raises_about(DataError, "bomb.gz", "got more"):
        read_idx(path, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000


def test_memory_of_a_short_file(tmp_path):
    path = tmp_path / "liar"
    path.write_bytes(struct.pack(">2I", 0x0801, idx_module.MAX_BYTES) + b"few")
    tracemalloc.start()
    with raises_about(DataError, path, "got 3"):
        read_idx(path, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
