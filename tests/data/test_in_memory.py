from __future__ import annotations

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps.data import InMemoryDataset
from torchcaps.errors import DataError, ShapeError


def make(images=None, labels=None, **others) -> InMemoryDataset:
    images = torch.zeros(4, 1, 5, 6, dtype=torch.uint8) if images is None else images
    labels = torch.tensor([0, 1, 1, 0]) if labels is None else labels
    return InMemoryDataset("made", "train", images, labels, ("a", "b"), "here", **others)


def test_attributes():
    data = make()
    assert (len(data), data.image_shape, data.num_classes, data.num_labels) == (4, (1, 5, 6), 2, 1)
    assert data.in_memory
    assert data.nbytes == 4 * 5 * 6


def test_subset_keeps_meta():
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    chosen = make(images, meta={"view": torch.tensor([10, 11, 12, 13])}).subset([2, 0])
    assert chosen.images.flatten().tolist() == [2, 0]
    assert chosen.labels.tolist() == [1, 0]
    assert chosen.meta["view"].tolist() == [12, 10]
    assert chosen.class_names == ("a", "b")


@pytest.mark.parametrize("images", [torch.zeros(4, 5, 6, dtype=torch.uint8), torch.zeros(4, 1, 5, 6)])
def test_wrong_images(images):
    with raises_about(ShapeError, "images", images.dtype, tuple(images.shape)):
        make(images)


@pytest.mark.parametrize("labels", [torch.zeros(4, 1, dtype=torch.int64), torch.zeros(4)])
def test_wrong_labels(labels):
    with raises_about(ShapeError, "labels", labels.dtype, tuple(labels.shape)):
        make(labels=labels)


def test_too_few_labels():
    with raises_about(DataError, "labels", "expected 4", "got 3", "here"):
        make(labels=torch.tensor([0, 1, 0]))


@pytest.mark.parametrize("wrong", [-1, 2])
def test_labels_beyond_the_classes(wrong):
    with raises_about(DataError, "labels", "0 to 1", wrong):
        make(labels=torch.tensor([0, 1, wrong, 0]))


def test_too_few_meta_values():
    with raises_about(DataError, "meta 'view'", "expected 4", "got 1"):
        make(meta={"view": torch.tensor([1])})


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 1, 4, 5), (3, 2, 4, 5)])
def test_from_arrays_keeps_bytes(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = InMemoryDataset.from_arrays(pixels, np.array([0, 2, 1], np.int32))
    assert np.array_equal(data.images.numpy().reshape(shape), pixels)
    assert data.class_names == ("0", "1", "2")
    assert data.labels.dtype == torch.int64


def test_from_arrays_copies():
    pixels = np.zeros((1, 2, 2), np.uint8)
    data = InMemoryDataset.from_arrays(pixels, [0])
    pixels[:] = 9
    assert int(data.images.max()) == 0


def test_from_arrays_strided():
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 3, 2).transpose(2, 1, 0)
    assert np.array_equal(InMemoryDataset.from_arrays(pixels, [0, 0]).images[:, 0].numpy(), pixels)


def test_from_arrays_rounds_floats():
    data = InMemoryDataset.from_arrays(torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3), [0])
    assert data.images.flatten().tolist() == [0, 128, 255]


@pytest.mark.parametrize("shape", [(4,), (1, 1, 1, 1, 1)])
def test_from_arrays_wrong_axes(shape):
    with raises_about(ShapeError, "images", shape):
        InMemoryDataset.from_arrays(np.zeros(shape, np.uint8), [0])


def test_from_arrays_channels_last():
    with raises_about(ShapeError, "images", (2, 8, 8, 3), "transpose(0, 3, 1, 2)"):
        InMemoryDataset.from_arrays(np.zeros((2, 8, 8, 3), np.uint8), [0, 1])


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_from_arrays_floats_out_of_range(value):
    with raises_about(DataError, "images", "[0, 1]", value):
        InMemoryDataset.from_arrays(np.full((1, 2, 2), value), [0])


def test_from_arrays_wide_integers():
    with raises_about(DataError, "images", "int64"):
        InMemoryDataset.from_arrays(np.zeros((1, 2, 2), np.int64), [0])


@pytest.mark.parametrize("labels", [[0.5], [[0]], ["cat"]])
def test_from_arrays_wrong_labels(labels):
    with raises_about(ShapeError, "labels", np.asarray(labels).dtype):
        InMemoryDataset.from_arrays(np.zeros((1, 2, 2), np.uint8), labels)


def test_from_arrays_too_few_labels():
    with raises_about(DataError, "labels", "expected 2", "got 1"):
        InMemoryDataset.from_arrays(np.zeros((2, 2, 2), np.uint8), [0])


def test_batch_by_mask():
    data = InMemoryDataset.from_arrays(np.arange(160, dtype=np.uint8).reshape(10, 4, 4), [0, 1] * 5)
    some = data.batch(data.labels == 1)
    assert torch.equal(some.images, data.images[1::2])
    assert some.sources is None


def test_evenly_spaced():
    data = InMemoryDataset.from_arrays(np.zeros((100, 2, 2), np.uint8), np.arange(100))
    assert data.evenly_spaced(4).labels.tolist() == [0, 25, 50, 75]
    assert data.evenly_spaced(100) is data


def test_cropped_is_the_centre():
    data = InMemoryDataset.from_arrays(np.arange(16, dtype=np.uint8).reshape(1, 4, 4), [0])
    assert data.cropped(2).images.flatten().tolist() == [5, 6, 9, 10]
    assert data.image_shape == (1, 4, 4)
