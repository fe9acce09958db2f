"""TREC and SST-2: readers of the original files, sentences as images, and what damage does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data, sentence_words
from torchcaps.data.readers.labelled_lines import read_labelled_lines
from torchcaps.data.readers.word_vectors import read_word_vectors
from torchcaps.errors import ConfigError, DataError

CLASSES = {"NUM": 0, "LOC": 1}
VECTOR = " ".join(["0.25"] * 99)


@pytest.fixture
def text(own_data: Path) -> Path:
    glove = f"the 1.0 {VECTOR}\nfar -9.5 {VECTOR}\nunused not numbers\n"
    questions = "".join(
        f"{label}:x How far is the river ?\n" for label in ("NUM", "LOC", "HUM", "DESC") for _ in "12345"
    )
    files = {
        "glove/glove.6B.100d.subset.txt": glove,
        "text/trec/train_5500.label": questions,
        "text/trec/TREC_10.label": "NUM:dist How far is the moon ?\nABBR:exp What ?\n",
        "text/sst/stsa.binary.train": "1 the best\n0 far from it\n",
        "text/sst/stsa.binary.dev": "0 the worst .\n",
        "text/sst/stsa.binary.test": "1 the the\n",
    }
    for name, content in files.items():
        (own_data / name).parent.mkdir(parents=True, exist_ok=True)
        (own_data / name).write_text(content)
    return own_data


def test_words_are_columns(text: Path) -> None:
    data = load_data("trec", "test", length=8)
    assert data.images.shape == (2, 100, 1, 8)
    assert data.labels.tolist() == [5, 0]
    far, the = data.images[0, :, 0, 1], data.images[0, :, 0, 3]
    # 128 + 32 v, from 1 to 255.
    assert the.tolist() == [160, *[136] * 99]
    assert far.tolist() == [1, *[136] * 99]
    assert not data.images[0, :, 0, 6:].any()
    assert data.images[0, :, 0, :6].all()
    # Words without a vector have one that depends on the word alone.
    how, what = data.images[0, :, 0, 0], data.images[1, :, 0, 0]
    assert how.min() >= 112
    assert how.max() <= 144
    assert not torch.equal(how, what)
    assert torch.equal(how, load_data("trec", "train", val_size=4).images[0, :, 0, 0])


def test_words_of_sentences(text: Path) -> None:
    data = load_data("trec", "test", length=8)
    assert sentence_words("trec", data.images) == [["how", "far", "is", "the", "moon", "?"], ["what", "?"]]
    assert sentence_words("sst2", load_data("sst2", "val").images) == [["the", "worst", "."]]
    data.images[1, :, 0, 0] = 7
    assert sentence_words("trec", data.images[1:]) == [["?", "?"]]


def test_splits(text: Path) -> None:
    sizes = {split: len(load_data("trec", split, val_size=4)) for split in ("train", "val", "train+val", "test")}
    assert sizes == {"train": 16, "val": 4, "train+val": 20, "test": 2}
    # Stratified: one question of each of the four classes.
    assert sorted(load_data("trec", "val", val_size=4).labels.tolist()) == [1, 3, 4, 5]
    assert load_data("sst2", "train").labels.tolist() == [1, 0]
    assert load_data("sst2", "val").labels.tolist() == [0]
    assert load_data("sst2", "train+val").labels.tolist() == [1, 0, 0]
    assert load_data("sst2", "test").image_shape == (100, 1, 56)


def test_long_sentences_are_cut(text: Path) -> None:
    assert load_data("trec", "test", length=2).images.all()
    with raises_about(ConfigError, "length", "got 0"):
        load_data("trec", "test", length=0)


def test_missing_files(own_data: Path) -> None:
    with raises_about(DataError, "TREC_10.label", "text/trec"):
        load_data("trec", "test")


def test_missing_vectors(text: Path) -> None:
    glove = text / "glove" / "glove.6B.100d.subset.txt"
    glove.write_text("unrelated 1 2\n")
    with raises_about(DataError, "glove", "none of them"):
        load_data("trec", "test")
    glove.unlink()
    with raises_about(DataError, "glove.6B.100d.txt", "nlp.stanford.edu"):
        load_data("trec", "test")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        (b"\n \n", "empty file"),
        (b"NUM:dist How far ?\nMUN:dist How near ?\n", "line 2, got 'MUN'"),
        (b"NUM:dist\n", "line 1, got 0"),
        (b"NUM " + b"a " * 20_000, "line 1"),
        (b"NUM a\n" * 100_000, "at most 100,000 bytes"),
        (b"\x1f\x8b\x08 no gzip", "gzip"),
        (b"\x00" * 100, "line 1"),
    ],
)
def test_damaged_sentences(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "train.label"
    path.write_bytes(content)
    with raises_about(DataError, "train.label", reason):
        read_labelled_lines(path, CLASSES, 100_000)


def test_encodings_and_odd_separators(tmp_path: Path) -> None:
    path = tmp_path / "train.label"
    path.write_bytes("NUM Été\r\nLOC caf\u00e9\x85 x\n".encode() + b"LOC caf\xe9\n")
    sentences, labels = read_labelled_lines(path, CLASSES, 1000)
    assert labels == [0, 1, 1]
    assert [words[0] for words in sentences] == ["été", "café", "café"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"the 1 2\n", "3 finite numbers in line 1, got 2"),
        (b"of 1 2 3\nthe 1 2 nan\n", "3 finite numbers in line 2"),
        (b"the 1 2 1e999\n", "finite"),
        (b"the 1 2 three\n", "3 numbers in line 1, got '1 2 three'"),
        (b"x" * 10_000, "line 1"),
        (b"of 1 2 3\n" * 2000, "10,000 in all"),
    ],
)
def test_damaged_vectors(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with raises_about(DataError, "vectors.txt", reason):
        read_word_vectors(path, {"the", "of"}, 3, 10_000)


@pytest.mark.skipif("TORCHCAPS_DATA" not in os.environ, reason="needs the original files in TORCHCAPS_DATA")
@pytest.mark.parametrize(("name", "counts"), [("trec", (4952, 500, 500)), ("sst2", (6920, 872, 1821))])
def test_original_files(name: str, counts: tuple[int, ...]) -> None:
    if not (Path(os.environ["TORCHCAPS_DATA"]) / "text").is_dir():
        pytest.skip("no text in TORCHCAPS_DATA")
    for split, count in zip(("train", "val", "test"), counts, strict=True):
        assert len(load_data(name, split)) == count
