from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps.data import Batch, GeneratedDataset, describe
from torchcaps.errors import DataError


def generate(numbers: Tensor) -> Batch:
    """Images filled with their number, 4x4, with a source for each of two labels."""
    images = numbers.view(-1, 1, 1, 1).expand(-1, 1, 4, 4).to(torch.uint8)
    labels = torch.stack([numbers % 3, (numbers + 1) % 3], dim=1)
    return Batch(images, labels, torch.stack([images, images], dim=1), {"number": numbers})


@pytest.fixture
def data() -> GeneratedDataset:
    return GeneratedDataset("numbers", "test", ("a", "b", "c"), "a test", 50, generate)


def test_attributes(data):
    assert (len(data), data.image_shape, data.num_classes, data.num_labels) == (50, (1, 4, 4), 3, 2)
    assert data.images[:, 0, 0, 0].tolist() == list(range(50))
    assert data.labels[4].tolist() == [1, 2]
    assert data.meta["number"].tolist() == list(range(50))


def test_lazy():
    generated = []

    def watched(numbers: Tensor) -> Batch:
        generated.append(len(numbers))
        return generate(numbers)

    huge = GeneratedDataset("numbers", "train", ("a", "b", "c"), "a test", 10**10, watched)
    assert huge.batch([10**10 - 1, 5]).meta["number"].tolist() == [10**10 - 1, 5]
    assert len(huge.subset([3, 2, 1])) == 3
    assert len(huge[10**9 : 10**9 + 7]) == 7
    assert sum(generated) == 2


def test_subset_keeps_numbers(data):
    chosen = data.subset([40, 3, 7]).subset(torch.tensor([True, False, True]))
    assert chosen.meta["number"].tolist() == [40, 7]
    assert chosen.batch([1]).images[0, 0, 0, 0] == 7
    assert data.subset([]).labels.shape == (0, 2)
    assert data.subset([]).images.shape == (0, 1, 4, 4)


def test_cropped_sources(data):
    sources = data.cropped(2).batch([1]).sources
    assert sources is not None
    assert sources.shape == (1, 2, 1, 2, 2)


def test_describe_samples_evenly(monkeypatch, data):
    monkeypatch.setattr("torchcaps.data.summary._MAX_COUNTED", 30)
    summary = describe(data)
    assert (summary["images"], summary["counted"]) == (50, 30)
    assert sum(summary["classes"].values()) == 60
    assert summary["meta"]["number"][-1] >= 48
    assert data.evenly_spaced(50) is data


def test_negative_count():
    with raises_about(DataError, "numbers", -1):
        GeneratedDataset("numbers", "test", ("a",), "a test", -1, generate)
