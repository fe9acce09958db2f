import pickle

import numpy as np
import pytest

from formats import cifar_binary, pixels, python2_batch
from raising import raises_about
from torchcaps.data._cifar_sources import CIFAR10, CIFAR100
from torchcaps.data.readers import cifar
from torchcaps.data.readers.cifar import read_binary, read_python
from torchcaps.errors import DataError

IMAGES = pixels(3, 3, 32, 32)


@pytest.fixture
def put(tmp_path):
    def write(content: bytes):
        (tmp_path / "batch").write_bytes(content)
        return tmp_path / "batch"

    return write


def test_both_forms(put):
    names = ("coarse_labels", "fine_labels")
    labels: dict[str, list[int]] = {"coarse_labels": [1, 2, 3], "fine_labels": [40, 50, 60]}
    images, numbers = read_binary(put(cifar_binary(IMAGES, *labels.values())), names)
    theirs, their_numbers = read_python(put(python2_batch(IMAGES, labels)), names)
    assert np.array_equal(images.numpy(), IMAGES)
    assert np.array_equal(theirs.numpy(), IMAGES)
    for name in names:
        assert numbers[name].tolist() == their_numbers[name].tolist() == labels[name]


@pytest.mark.parametrize("content", [b"", bytes(3072), bytes(3074)])
def test_partial_records(put, content):
    with raises_about(DataError, "batch", "records of 3073", f"got {len(content):,}"):
        read_binary(put(content), ("labels",))


def test_too_many_records(put, monkeypatch):
    monkeypatch.setattr(cifar, "MAX_BATCH", 3073)
    with raises_about(DataError, "batch", "got more"):
        read_binary(put(cifar_binary(IMAGES, [1, 2, 3])), ("labels",))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps({"labels": [1]}, 2), "'data'"),
        (pickle.dumps({"data": pixels(1, 7), "labels": [1]}, 2), "'data'"),
        (pickle.dumps({"data": pixels(1, 3072)}, 2), "'labels'"),
        (pickle.dumps({"data": pixels(1, 3072), "labels": ["x"]}, 2), "'labels'"),
        (pickle.dumps({"data": pixels(1, 3072), "labels": [10**9]}, 2), "'labels'"),
        (python2_batch(IMAGES, {"labels": [1]}), "3 labels, one per image, got 1"),
    ],
)
def test_wrong_python_batch(put, content, reason):
    with raises_about(DataError, "batch", reason):
        read_python(put(content), ("labels",))


def test_sources(put):
    for source in (*CIFAR10, *CIFAR100):
        assert source.archive is not None
        assert source.archive.has_checksum
        assert source.files[-1].name.startswith("test")
    _, labels = CIFAR100[0].check(put(cifar_binary(IMAGES, [1, 2, 3], [40, 50, 60])), CIFAR100[0].files[0])
    assert labels["fine_labels"].tolist() == [40, 50, 60]
