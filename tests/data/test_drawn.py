from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchcaps.data import Batch, DrawnData, ImageData, describe
from torchcaps.errors import DataError


def draw(numbers: Tensor) -> Batch:
    """Images that say their number, 4x4, with a source for each of two labels."""
    images = numbers.view(-1, 1, 1, 1).expand(-1, 1, 4, 4).to(torch.uint8)
    labels = torch.stack([numbers % 3, (numbers + 1) % 3], dim=1)
    return Batch(images, labels, torch.stack([images, images], dim=1), {"number": numbers})


@pytest.fixture
def data() -> DrawnData:
    return DrawnData("numbers", "test", ("a", "b", "c"), "made up", 50, draw)


def test_it_is_image_data(data):
    assert isinstance(data, ImageData)
    assert (len(data), data.image_shape, data.num_classes, data.num_labels) == (50, (1, 4, 4), 3, 2)
    assert data.images[:, 0, 0, 0].tolist() == list(range(50))
    assert data.labels[4].tolist() == [1, 2]
    assert data.meta["number"].tolist() == list(range(50))


def test_nothing_is_drawn_that_nobody_asked_for():
    asked = []

    def watched(numbers: Tensor) -> Batch:
        asked.append(len(numbers))
        return draw(numbers)

    huge = DrawnData("numbers", "train", ("a", "b", "c"), "made up", 10**10, watched)
    assert huge.batch([10**10 - 1, 5]).meta["number"].tolist() == [10**10 - 1, 5]
    assert len(huge.subset([3, 2, 1])) == 3
    assert sum(asked) == 2


def test_subsets_keep_their_numbers(data):
    part = data.subset([40, 3, 7]).subset(torch.tensor([True, False, True]))
    assert part.meta["number"].tolist() == [40, 7]
    assert part.batch([1]).images[0, 0, 0, 0] == 7
    assert [len(batch.labels) for batch in data.batches(20)] == [20, 20, 10]
    assert data.subset([]).labels.shape == (0, 2)


def test_a_crop_is_of_images_and_sources(data):
    small = data.cropped(2)
    assert small.image_shape == (1, 2, 2)
    sources = small.batch([1]).sources
    assert sources is not None
    assert sources.shape == (1, 2, 1, 2, 2)


def test_a_description_looks_at_some_of_many(monkeypatch, data):
    monkeypatch.setattr("torchcaps.data.summary._ENOUGH", 30)
    summary = describe(data)
    assert (summary["images"], summary["counted"]) == (50, 30)
    assert sum(summary["classes"].values()) == 60
    # From the first to the last, not the first of them alone.
    assert summary["meta"]["number"][-1] >= 48
    assert data.spread(50) is data


@pytest.mark.parametrize("places", [[50], [-1], [3, 70]])
def test_a_number_that_is_not_there(data, places):
    with pytest.raises(DataError, match=r"indices: expected 0 to 49, got .* \('numbers'\)"):
        data.batch(places)


def test_a_count_below_nothing():
    with pytest.raises(DataError, match="numbers: expected a count of samples, got -1"):
        DrawnData("numbers", "test", ("a",), "made up", -1, draw)
