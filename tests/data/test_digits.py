import lzma
import runpy
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, load_data
from torchcaps.data.digits import COUNTS
from torchcaps.errors import DataError


def keys(data: ImageDataset) -> set[tuple[bytes, int]]:
    return {(image.numpy().tobytes(), int(label)) for image, label in zip(data.images, data.labels, strict=True)}


def embedded() -> bytes:
    return files("torchcaps.data").joinpath("digits.idx.xz").read_bytes()


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_balanced(split):
    data = load_data("digits", split)
    assert len(data) == COUNTS[split]
    assert data.image_shape == (1, 28, 28)
    assert data.labels.bincount().tolist() == [COUNTS[split] // 10] * 10


def test_splits_are_disjoint():
    train, val, test = (keys(load_data("digits", split)) for split in ("train", "val", "test"))
    assert len(train) + len(val) + len(test) == 6000
    assert not train & val
    assert not (train | val) & test


def test_train_plus_val():
    both = load_data("digits", "train+val")
    train, val = load_data("digits", "train"), load_data("digits", "val")
    assert torch.equal(both.images, torch.cat([train.images, val.images]))
    assert torch.equal(both.labels, torch.cat([train.labels, val.labels]))


def test_classes_are_mixed():
    # A run on the first few hundred must not see one class only.
    assert len(load_data("digits", "train").labels[:100].unique()) == 10


def test_digits_are_from_mnist(real_data):
    mnist_train, mnist_test = keys(load_data("mnist", "train+val")), keys(load_data("mnist", "test"))
    assert keys(load_data("digits", "train+val")) <= mnist_train
    assert keys(load_data("digits", "test")) <= mnist_test
    assert not keys(load_data("digits", "test")) & mnist_train


def test_script(real_data):
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "make_digits.py"))
    # Compared unpacked: another version of xz may pack the same bytes differently.
    assert script["embed"](real_data / "mnist") == lzma.decompress(embedded())


def test_file_size():
    assert len(embedded()) < 1_000_000


@pytest.mark.parametrize("content", [b"nothing like xz", b""])
def test_damaged_package(monkeypatch, tmp_path, content):
    (tmp_path / "digits.idx.xz").write_bytes(content)
    monkeypatch.setattr("torchcaps.data.digits.files", lambda package: tmp_path)
    with raises_about(DataError, "digits.idx.xz", "install torchcaps again"):
        load_data("digits", "test")
