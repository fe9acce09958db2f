import hashlib

import numpy as np
import pytest
import torch

from formats import cifar_binary, pixels, python2_batch, tar_of
from raising import raises_about
from torchcaps.data import load_data
from torchcaps.data._cifar_names import COARSE, FINE
from torchcaps.errors import ConfigError, DataError

LABELS = [place % 10 for place in range(20)]
FINE_LABELS = [place * 7 % 100 for place in range(20)]
COARSE_LABELS = [place % 20 for place in range(20)]


def batch(number: int) -> np.ndarray:
    return pixels(20, 3, 32, 32, seed=number)


def write_cifar10(own_data, form: str, numbers=(1, 2, 3, 4, 5)) -> None:
    folder = own_data / f"cifar-10-batches-{form}"
    folder.mkdir(exist_ok=True)
    names = {f"data_batch_{number}": number for number in numbers} | {"test_batch": 9}
    for name, number in names.items():
        if form == "bin":
            (folder / f"{name}.bin").write_bytes(cifar_binary(batch(number), LABELS))
        else:
            (folder / name).write_bytes(python2_batch(batch(number), {"labels": LABELS}))


def write_cifar100(own_data, form: str) -> None:
    folder = own_data / f"cifar-100-{form}"
    folder.mkdir()
    for name, number in (("train", 1), ("test", 9)):
        if form == "binary":
            (folder / f"{name}.bin").write_bytes(cifar_binary(batch(number), COARSE_LABELS, FINE_LABELS))
        else:
            labels = {"fine_labels": FINE_LABELS, "coarse_labels": COARSE_LABELS}
            (folder / name).write_bytes(python2_batch(batch(number), labels))


@pytest.mark.parametrize("form", ["bin", "py"])
def test_cifar10_in_both_forms(own_data, form):
    write_cifar10(own_data, form)
    everything = load_data("cifar10", "train+val")
    assert torch.equal(everything.images, torch.from_numpy(np.concatenate([batch(k) for k in (1, 2, 3, 4, 5)])))
    assert everything.labels.tolist() == LABELS * 5
    assert everything.origin == str(own_data / f"cifar-10-batches-{form}")
    test = load_data("cifar10", "test")
    assert torch.equal(test.images, torch.from_numpy(batch(9)))
    assert test.class_names[6] == "frog"
    train, val = (load_data("cifar10", split, val_size=20) for split in ("train", "val"))
    assert (len(train), len(val)) == (80, 20)
    assert val.labels.bincount().tolist() == [2] * 10


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar100_in_both_forms(own_data, form):
    write_cifar100(own_data, form)
    fine, coarse = (load_data("cifar100", "test", labels=labels) for labels in ("fine", "coarse"))
    assert fine.labels.tolist() == FINE_LABELS
    assert coarse.labels.tolist() == COARSE_LABELS
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    assert torch.equal(fine.images, torch.from_numpy(batch(9)))
    with raises_about(ConfigError, "labels", "got 'both'"):
        load_data("cifar100", "test", labels="both")


def test_class_names():
    assert (len(FINE), len(COARSE)) == (100, 20)
    assert list(FINE) == sorted(FINE)
    assert list(COARSE) == sorted(COARSE)


def test_missing_batches(own_data):
    write_cifar10(own_data, "bin", (1, 2))
    with pytest.warns(UserWarning, match=r"cifar10: .*data_batch_3\.bin.*`torchcaps data download cifar10`"):
        data = load_data("cifar10", "train+val")
    assert len(data) == 40
    assert data.origin.endswith("(without data_batch_3.bin, data_batch_4.bin, data_batch_5.bin)")


def test_more_complete_form(own_data):
    write_cifar10(own_data, "bin", (1, 2))
    write_cifar10(own_data, "py")
    assert load_data("cifar10", "train+val").origin.endswith("cifar-10-batches-py")


def test_cache_completes_the_folder(own_data):
    write_cifar10(own_data, "bin", (1, 2))
    (own_data.parent / "cache").mkdir()
    write_cifar10(own_data.parent / "cache", "bin")
    assert len(load_data("cifar10", "train+val")) == 100


def test_archive(own_data):
    names = [f"data_batch_{k}" for k in (1, 2, 3, 4, 5)] + ["test_batch"]
    members = {f"cifar-10-batches-bin/{name}.bin": cifar_binary(batch(1), LABELS) for name in names}
    (own_data / "cifar-10-binary.tar.gz").write_bytes(tar_of(members))
    assert len(load_data("cifar10", "train+val")) == 100


def test_missing_files(own_data):
    with raises_about(DataError, "data_batch_1.bin", "cifar-10-binary.tar.gz"):
        load_data("cifar10")


def test_label_beyond_the_classes(own_data):
    (own_data / "cifar-10-batches-bin").mkdir()
    (own_data / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(cifar_binary(batch(1)[:1], [10]))
    with raises_about(DataError, "test_batch.bin", "10 classes", "got 10"):
        load_data("cifar10", "test")


def test_real_test_set(real_data):
    data = load_data("cifar10", "test")
    assert data.labels.bincount().tolist() == [1000] * 10
    assert data.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert hashlib.sha256(data.images.numpy().tobytes()).hexdigest()[:16] == "177777c33ba79825"
