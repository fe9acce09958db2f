"""The protocol that in-memory, generated and sharded data sets share."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Subset, random_split

from raising import raises_about
from torchcaps.data import (
    Batch,
    BatchLoader,
    GeneratedDataset,
    ImageDataset,
    InMemoryDataset,
    load_data,
    load_shards,
    make_shards,
    to_float,
)
from torchcaps.errors import DataError, ShapeError

COUNT = 12
CLASSES = ("even", "odd")


def generate(numbers: Tensor) -> Batch:
    images = numbers.view(-1, 1, 1, 1).expand(-1, 1, 4, 4).to(torch.uint8)
    return Batch(images, numbers % 2, None, {})


def generate_two(numbers: Tensor) -> Batch:
    batch = generate(numbers)
    sources = torch.stack([batch.images, batch.images], dim=1)
    return Batch(batch.images, torch.stack([numbers % 2, 1 - numbers % 2], dim=1), sources, {"number": numbers})


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve training images, each filled with its number, in shards of five."""
    root = tmp_path_factory.mktemp("made")
    for split, count in (("train", COUNT), ("val", 2), ("test", 2)):
        for number in range(count):
            file = root / "images" / split / CLASSES[number % 2] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4), number, np.uint8)).save(file)
    return make_shards(root / "images", root / "shards", shard_size=5)


@pytest.fixture(params=["in_memory", "generated", "sharded"])
def data(request: pytest.FixtureRequest, shards: Path) -> ImageDataset:
    """Twelve images of 4x4, each filled with its own number."""
    if request.param == "in_memory":
        pixels = np.arange(COUNT, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)
        return InMemoryDataset.from_arrays(pixels, np.arange(COUNT) % 2, class_names=CLASSES)
    if request.param == "generated":
        return GeneratedDataset("numbers", "train", CLASSES, "a test", COUNT, generate)
    return load_shards("train", shards)


def numbers(data: ImageDataset) -> list[int]:
    return data.images[:, 0, 0, 0].tolist()


def test_sample(data):
    image, label = data[3]
    assert (image.dtype, tuple(image.shape)) == (torch.float32, (1, 4, 4))
    assert type(label) is int
    assert torch.equal(image, to_float(data.images[3]))
    assert label == int(data.labels[3])


@pytest.mark.parametrize("index", [-1, -COUNT, np.int64(2), torch.tensor(2)])
def test_index(data, index):
    assert torch.equal(data[index][0], to_float(data.images[int(index)]))


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1, 10**6])
def test_index_out_of_range(data, index):
    with pytest.raises(IndexError, match=f"index: .*got {index}"):
        data[index]


@pytest.mark.parametrize("index", [1.0, "1", [1, 2], None])
def test_index_of_wrong_type(data, index):
    with pytest.raises(TypeError, match=f"index: .*{type(index).__name__}.*subset"):
        data[index]


@pytest.mark.parametrize(
    "index", [slice(2, 5), slice(None), slice(-3, None), slice(None, None, -1), slice(5, 2), slice(0, 100, 5)]
)
def test_slice_is_a_data_set(data, index):
    chosen = data[index]
    assert isinstance(chosen, ImageDataset)
    assert numbers(chosen) == numbers(data)[index]


def test_iteration_ends(data):
    assert [round(float(image.max()) * 255) for image, _ in data] == numbers(data)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(data, workers):
    images, labels = next(iter(DataLoader(data, batch_size=5, num_workers=workers)))
    assert torch.equal(images, to_float(data.images[:5]))
    assert torch.equal(labels, data.labels[:5])


@pytest.mark.parametrize("kind", ["in_memory", "generated", "sharded"])
def test_spawned_worker(kind, shards):
    # A spawned process cannot import the functions of this file.
    data = {
        "in_memory": lambda: load_data("digits", "test")[:COUNT],
        "generated": lambda: load_data("multimnist", "test", source="digits").cropped(28)[:COUNT],
        "sharded": lambda: load_shards("train", shards),
    }[kind]()
    loader = DataLoader(data, batch_size=COUNT, num_workers=1, multiprocessing_context="spawn")
    images, labels = next(iter(loader))
    assert torch.equal(images, to_float(data.images))
    assert torch.equal(labels, data.labels)


def test_subset_and_random_split(data):
    assert [sample[1] for sample in cast(Any, Subset(data, [4, 1]))] == [int(data.labels[4]), int(data.labels[1])]
    first, second = cast(list[Any], random_split(data, [8, 4], generator=torch.Generator().manual_seed(0)))
    seen = [round(float(image[0, 0, 0]) * 255) for split in (first, second) for image, _ in split]
    assert sorted(seen) == sorted(numbers(data))
    assert len(list(DataLoader(first, batch_size=3))) == 3


def test_transform(data):
    flat = data.with_transform(torch.flatten)
    assert flat[0][0].shape == (16,)
    assert data[0][0].shape == (1, 4, 4)
    for other in (flat[1:3], flat.subset([0]), flat.cropped(2), flat.renamed("other", "test")):
        assert other[0][0].dim() == 1
    assert flat.batch([0]).images.shape == (1, 1, 4, 4)
    images, _ = next(iter(DataLoader(flat, batch_size=4)))
    assert images.shape == (4, 16)


def test_batches_cover_the_data(data):
    batches = list(data.batches(5))
    assert [len(batch.labels) for batch in batches] == [5, 5, 2]
    assert torch.equal(torch.cat([batch.images for batch in batches]), data.images)
    assert torch.equal(torch.cat([batch.labels for batch in batches]), data.labels)


def test_subset_by_indices_and_mask(data):
    assert numbers(data.subset([7, 0, -1])) == [numbers(data)[k] for k in (7, 0, -1)]
    assert set((data.subset(data.labels == 1).images[:, 0, 0, 0] % 2).tolist()) == {1}
    assert len(data.subset([])) == 0


@pytest.mark.parametrize("indices", [[COUNT], [-COUNT - 1], [3, 70]])
def test_indices_out_of_range(data, indices):
    with raises_about(DataError, "indices", indices[-1], data.name):
        data.batch(indices)
    with raises_about(DataError, "indices", indices[-1]):
        data.subset(indices)


@pytest.mark.parametrize("indices", [[[0, 1]], 3, [0.5], [True, False]])
def test_indices_of_wrong_shape(data, indices):
    with raises_about(ShapeError, "indices", data.name):
        data.batch(indices)


def test_attributes(data):
    assert (len(data), data.image_shape, data.class_names, data.num_classes) == (COUNT, (1, 4, 4), CLASSES, 2)
    assert data.num_labels == 1
    assert data.meta == {}
    assert data.in_memory == (data.nbytes > 0)


def test_renamed(data):
    other = data.renamed("other", "test")
    assert (other.name, other.split) == ("other", "test")
    assert (data.name, data.split) != ("other", "test")
    assert torch.equal(other.images, data.images)


def test_cropped(data):
    small = data.cropped(2)
    assert (small.image_shape, data.image_shape) == ((1, 2, 2), (1, 4, 4))
    assert small[5][0].shape == (1, 2, 2)


def test_pickle(data):
    other = pickle.loads(pickle.dumps(data.cropped(2)))
    assert torch.equal(other.images, data.cropped(2).images)


def test_loader_pickles_midway(data):
    loader = BatchLoader(data, 4, shuffle=True, seed=1)
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    for batch, expected in zip(other, loader, strict=True):
        assert all(map(torch.equal, batch, expected))


def test_two_labels():
    data = GeneratedDataset("pairs", "train", CLASSES, "a test", COUNT, generate_two)
    image, label = data[3]
    assert image.shape == (1, 4, 4)
    assert label.tolist() == [1, 0]
    assert label.dtype == torch.int64
    _, labels = next(iter(DataLoader(data, batch_size=5)))
    assert labels.shape == (5, 2)


def test_to_float():
    images = torch.arange(256).to(torch.uint8)
    floats = to_float(images)
    assert floats.dtype == torch.float32
    assert torch.equal(floats, torch.arange(256) / 255)
    assert images.tolist() == list(range(256))


def test_to_float_of_floats():
    signals = torch.randn(2)
    assert to_float(signals) is signals
    with raises_about(ShapeError, "images", "torch.int64"):
        to_float(torch.arange(2))
