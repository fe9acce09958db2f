import lzma
import runpy
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from torchcaps.data import ImageData, load_data
from torchcaps.data.digits import COUNTS
from torchcaps.errors import DataError


def keys(data: ImageData) -> set[tuple[bytes, int]]:
    return {(image.numpy().tobytes(), int(label)) for image, label in zip(data.images, data.labels, strict=True)}


def embedded() -> bytes:
    return files("torchcaps.data").joinpath("digits.idx.xz").read_bytes()


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_each_part_is_balanced(split):
    data = load_data("digits", split)
    assert len(data) == COUNTS[split]
    assert data.image_shape == (1, 28, 28)
    assert data.labels.bincount().tolist() == [COUNTS[split] // 10] * 10


def test_parts_share_no_image():
    train, val, test = (keys(load_data("digits", split)) for split in ("train", "val", "test"))
    assert len(train) + len(val) + len(test) == 6000
    assert not train & val
    assert not (train | val) & test


def test_train_and_val_together():
    both = load_data("digits", "train+val")
    train, val = load_data("digits", "train"), load_data("digits", "val")
    assert torch.equal(both.images, torch.cat([train.images, val.images]))
    assert torch.equal(both.labels, torch.cat([train.labels, val.labels]))


def test_classes_are_mixed():
    # A run on the first few hundred must not see one class only.
    assert len(load_data("digits", "train").labels[:100].unique()) == 10


def test_digits_are_those_of_mnist(real_data):
    mnist_train, mnist_test = keys(load_data("mnist", "train+val")), keys(load_data("mnist", "test"))
    assert keys(load_data("digits", "train+val")) <= mnist_train
    assert keys(load_data("digits", "test")) <= mnist_test
    assert not keys(load_data("digits", "test")) & mnist_train


def test_the_script_makes_the_same_again(real_data):
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "make_digits.py"))
    # Compared unpacked: another version of xz may pack the same bytes differently.
    assert script["embed"](real_data / "mnist") == lzma.decompress(embedded())


def test_the_file_is_small():
    assert len(embedded()) < 1_000_000


@pytest.mark.parametrize("content", [b"nothing like xz", b""])
def test_a_damaged_package_says_so(monkeypatch, tmp_path, content):
    (tmp_path / "digits.idx.xz").write_bytes(content)
    monkeypatch.setattr("torchcaps.data.digits.files", lambda package: tmp_path)
    with pytest.raises(DataError, match=r"digits\.idx\.xz: expected .*install torchcaps again"):
        load_data("digits", "test")
