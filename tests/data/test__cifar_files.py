import pickle

import numpy as np
import pytest

from formats import cifar_binary, pixels, python2_batch
from torchcaps.data import _cifar_files
from torchcaps.data._cifar_files import CIFAR10, CIFAR100, read_binary, read_python
from torchcaps.errors import DataError

IMAGES = pixels(3, 3, 32, 32)


@pytest.fixture
def put(tmp_path):
    def write(content: bytes):
        (tmp_path / "batch").write_bytes(content)
        return tmp_path / "batch"

    return write


def test_both_forms_give_the_same(put):
    names = ("coarse_labels", "fine_labels")
    labels: dict[str, list[int]] = {"coarse_labels": [1, 2, 3], "fine_labels": [40, 50, 60]}
    images, numbers = read_binary(put(cifar_binary(IMAGES, *labels.values())), names)
    theirs, their_numbers = read_python(put(python2_batch(IMAGES, labels)), names)
    assert np.array_equal(images.numpy(), IMAGES)
    assert np.array_equal(theirs.numpy(), IMAGES)
    for name in names:
        assert numbers[name].tolist() == their_numbers[name].tolist() == labels[name]


@pytest.mark.parametrize("content", [b"", bytes(3072), bytes(3074)])
def test_records_that_do_not_come_out_even(put, content):
    with pytest.raises(
        DataError, match=r"batch: expected records of 3073 bytes, got .* bytes \(truncated or damaged\)"
    ):
        read_binary(put(content), ("labels",))


def test_too_many_records(put, monkeypatch):
    monkeypatch.setattr(_cifar_files, "_MOST", 3073)
    with pytest.raises(DataError, match=r"batch: expected at most 3,073 bytes, got more"):
        read_binary(put(cifar_binary(IMAGES, [1, 2, 3])), ("labels",))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps({"labels": [1]}, 2), "expected 'data', an array of 3072 bytes for each image, got none"),
        (pickle.dumps({"data": pixels(1, 7), "labels": [1]}, 2), "expected 'data', an array of 3072 bytes"),
        (pickle.dumps({"data": pixels(1, 3072)}, 2), "expected 'labels', a list of class numbers, got none"),
        (pickle.dumps({"data": pixels(1, 3072), "labels": ["x"]}, 2), "expected 'labels', a list of class numbers"),
        (pickle.dumps({"data": pixels(1, 3072), "labels": [10**9]}, 2), "expected 'labels', a list of class numbers"),
        (python2_batch(IMAGES, {"labels": [1]}), "expected 3 labels, one for each image, got 1; fetch it again"),
    ],
)
def test_python_batches_that_are_not_what_they_should_be(put, content, reason):
    with pytest.raises(DataError, match=f"batch: {reason}"):
        read_python(put(content), ("labels",))


def test_every_form_can_be_fetched_and_knows_its_labels(put):
    for source in (*CIFAR10, *CIFAR100):
        assert source.archive is not None
        assert source.archive.has_checksum
        assert source.files[-1].name.startswith("test")
    _, labels = CIFAR100[0].check(put(cifar_binary(IMAGES, [1, 2, 3], [40, 50, 60])), CIFAR100[0].files[0])
    assert labels["fine_labels"].tolist() == [40, 50, 60]
