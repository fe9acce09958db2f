import gzip
import hashlib
import struct
from dataclasses import replace

import pytest
import torch

from raising import raises_about
from torchcaps.data import DATASETS, load_data, mnist
from torchcaps.data._sources import DataFile
from torchcaps.data.mnist import FASHION_MNIST, MNIST, load_idx_set, read_idx_pair
from torchcaps.errors import ConfigError, DataError


def small_set(folder, *, images: int = 40, labels: int = 40, packed: bool = True) -> mnist.IdxSet:
    """A data set of four small idx files in `folder`, and its description."""
    pixels = struct.pack(">4I", 0x0803, images, 3, 3) + bytes(i % 251 for i in range(images * 9))
    numbers = struct.pack(">2I", 0x0801, labels) + bytes(i % 2 for i in range(labels))
    folder.mkdir()
    files = []
    for name, content in (("images", pixels), ("labels", numbers)):
        stored = gzip.compress(content) if packed else content
        (folder / (f"{name}.gz" if packed else name)).write_bytes(stored)
        of_file, of_content = (hashlib.sha256(part).hexdigest() for part in (stored, content))
        files.append(DataFile(f"{name}.gz", of_file, of_content))
    both = (files[0], files[1])
    return replace(MNIST, name="small", folder=folder.name, mirrors=(), class_names=("a", "b"), train=both, test=both)


@pytest.mark.parametrize("packed", [True, False])
def test_splits(tmp_path, monkeypatch, packed):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    source = small_set(tmp_path / "small", packed=packed)
    everything, train, val = (load_idx_set(source, split, 10) for split in ("train+val", "train", "val"))
    assert (len(everything), len(train), len(val)) == (40, 30, 10)
    assert val.labels.bincount().tolist() == [5, 5]
    assert everything.origin == str(tmp_path / "small")

    # No two images are alike, so their bytes can name them.
    def names(data):
        return [bytes(image.flatten().tolist()) for image in data.images]

    assert sorted(names(train) + names(val)) == sorted(names(everything))
    # In the order of the file.
    assert names(train) == [name for name in names(everything) if name not in names(val)]


def test_too_few_labels(tmp_path):
    source = small_set(tmp_path / "small", labels=39)
    with raises_about(DataError, "labels.gz", "got 39"):
        read_idx_pair(source, "train", [tmp_path / "small"])


def test_missing_file(tmp_path):
    with raises_about(DataError, "train-images-idx3-ubyte.gz", "no such file"):
        read_idx_pair(MNIST, "train", [tmp_path])


def test_fashion_instead_of_mnist(tmp_path, real_data, monkeypatch):
    (tmp_path / "mnist").symlink_to(real_data / "fashion-mnist")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    with raises_about(DataError, "t10k-images-idx3-ubyte.gz"):
        load_data("mnist", "test")


@pytest.mark.parametrize("source", [MNIST, FASHION_MNIST], ids=lambda source: source.name)
def test_real_splits(real_data, source):
    train, val = load_data(source.name, "train"), load_data(source.name, "val")
    test, both = load_data(source.name, "test"), load_data(source.name, "train+val")
    assert [len(part) for part in (train, val, test, both)] == [55000, 5000, 10000, 60000]
    assert train.image_shape == (1, 28, 28)
    assert torch.equal(train.labels.bincount() + val.labels.bincount(), both.labels.bincount())
    # In the proportions of the classes, to within one image.
    assert ((val.labels.bincount() - both.labels.bincount() / 12).abs() < 1).all()
    assert train.images.sum() + val.images.sum() == both.images.sum()


def test_first_labels(real_data):
    assert load_data("mnist", "train+val").labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert load_data("mnist", "test").labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_validation_split_is_fixed(real_data):
    # Results of other versions stay comparable only with the same split.
    val = load_data("mnist", "val")
    assert hashlib.sha256(val.images.numpy().tobytes()).hexdigest()[:16] == "f0c5df56ff909c39"


def test_val_size(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    source = small_set(tmp_path / "small")
    assert len(load_idx_set(source, "val", 4)) == 4
    assert len(load_idx_set(source, "train", 0)) == 40
    with raises_about(ConfigError, "val_size", "got 40"):
        load_idx_set(source, "train", 40)


def test_val_size_is_an_option():
    assert DATASETS["mnist"].options["val_size"].default == 5000
    assert DATASETS["fashion_mnist"].options["val_size"].default == 5000
