import gzip
import hashlib
import struct
import tracemalloc

import pytest
import torch

from torchcaps.data import idx as idx_module
from torchcaps.data.idx import parse_idx, read_idx
from torchcaps.errors import DataError


def idx(*sizes: int, magic: int | None = None) -> bytes:
    content = torch.arange(torch.Size(sizes).numel()).to(torch.uint8).numpy().tobytes()
    return struct.pack(f">{1 + len(sizes)}I", 0x0800 + len(sizes) if magic is None else magic, *sizes) + content


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_reads_plain_and_gzipped_whatever_the_name(tmp_path, pack):
    path = tmp_path / "images.gz"
    path.write_bytes(pack(idx(3, 4, 5)))
    assert torch.equal(read_idx(path, 3), torch.arange(60).to(torch.uint8).view(3, 4, 5))


def test_the_tensor_can_be_written_to():
    tensor = parse_idx(idx(4), 1, "here")
    tensor[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]


def test_checksum_is_of_the_contents(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(4)))
    assert len(read_idx(path, 1, hashlib.sha256(idx(4)).hexdigest())) == 4
    with pytest.raises(DataError, match=r"labels\.gz: expected contents with sha256 000000000000.*remove it and fetch"):
        read_idx(path, 1, "0" * 64)


@pytest.mark.parametrize("cut", [1, 12])
def test_cut_gzip(tmp_path, cut):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(idx(4, 4, 4))[:-cut])
    with pytest.raises(DataError, match=r"cut\.gz: expected a whole gzip file, got a damaged one .*fetch it again"):
        read_idx(path, 3)


def test_gzip_with_a_flipped_byte(tmp_path):
    path = tmp_path / "flipped.gz"
    content = bytearray(gzip.compress(idx(4, 4, 4)))
    content[20] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"flipped\.gz: expected a whole gzip file"):
        read_idx(path, 3)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DataError, match="expected a file that can be read, got Is a directory"):
        read_idx(tmp_path, 3)


def test_too_short_for_a_header():
    with pytest.raises(DataError, match=r"here: expected an idx file, got 5 bytes \(truncated\)"):
        parse_idx(idx(4)[:5], 1, "here")


@pytest.mark.parametrize("magic", [0x0803, 0x0D01, 0x01080000])
def test_wrong_magic(magic):
    with pytest.raises(DataError, match=r"here: expected an idx file of bytes with 1 axes \(magic 0x00000801\), got"):
        parse_idx(idx(4, magic=magic), 1, "here")


@pytest.mark.parametrize("content", [idx(4)[:-1], idx(4) + b"x"])
def test_too_few_or_too_many_bytes(content):
    with pytest.raises(DataError, match=r"here: expected 4 bytes after the header, got (3|more)"):
        parse_idx(content, 1, "here")


def test_an_empty_file_of_the_right_form():
    with pytest.raises(
        DataError, match=r"here: expected an idx file that is not empty, got sizes \[0, 4294967295, 2\]"
    ):
        parse_idx(struct.pack(">4I", 0x0803, 0, 2**32 - 1, 2), 3, "here")


def test_a_header_that_announces_too_much():
    with pytest.raises(DataError, match=r"here: expected at most 256,000,000 bytes, got a header that announces 4,"):
        parse_idx(struct.pack(">2I", 0x0801, 2**32 - 1), 1, "here")


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    # 100 MB of zeros in 100 kB, behind a header that announces four bytes.
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(idx(4) + bytes(100_000_000), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"bomb\.gz: expected 4 bytes after the header, got more"):
        read_idx(path, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000


def test_memory_grows_with_the_file_not_with_its_header(tmp_path):
    path = tmp_path / "liar"
    path.write_bytes(struct.pack(">2I", 0x0801, idx_module.MOST) + b"few")
    tracemalloc.start()
    with pytest.raises(DataError, match="expected 256000000 bytes after the header, got 3"):
        read_idx(path, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
