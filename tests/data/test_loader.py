from __future__ import annotations

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps.data import Augment, BatchLoader, ImageDataset, InMemoryDataset
from torchcaps.errors import ConfigError, DataError


def numbered(count: int) -> ImageDataset:
    """Images with their own number in one pixel, which shows the order."""
    pixels = np.zeros((count, 4, 4), np.uint8)
    pixels[:, 1, 1] = np.arange(count)
    return InMemoryDataset.from_arrays(pixels, np.arange(count) % 3, class_names="abc")


def same(a, b) -> bool:
    return len(a) == len(b) and all(map(torch.equal, sum(a, ()), sum(b, ())))


def test_in_order():
    batches = list(BatchLoader(numbered(10), 4))
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == [k % 3 for k in range(10)]
    images = torch.cat([images for images, _ in batches])
    assert images.dtype == torch.float32
    assert images[:, 0, 1, 1].mul(255).round().tolist() == list(range(10))


def test_shuffled_epochs():
    loader = BatchLoader(numbered(10), 4, shuffle=True, seed=1)
    first, second = ([images[:, 0, 1, 1] for images, _ in loader] for _ in range(2))
    assert len(loader) == len(first) == 2
    assert len(torch.cat(first).unique()) == 8
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    assert loader.epoch == 1


def test_labels_match_images():
    for images, labels in BatchLoader(numbered(30), 7, shuffle=True):
        assert torch.equal(images[:, 0, 1, 1].mul(255).round().long() % 3, labels)


def test_seed():
    def batches(seed):
        return list(BatchLoader(numbered(12), 4, shuffle=True, augment=Augment(shift=1), seed=seed))

    first = batches(5)
    torch.manual_seed(123)
    assert same(first, batches(5))
    assert not same(first, batches(6))


@pytest.mark.parametrize("position", range(8))
def test_resume(position):
    def make():
        return BatchLoader(numbered(16), 4, shuffle=True, augment=Augment(shift=1), seed=2)

    whole = make()
    batches = [batch for _ in range(2) for batch in whole]
    begun = make()
    seen = []
    for _ in range(2):
        for batch in begun:
            seen.append(batch)
            if len(seen) == position + 1:
                break
        if len(seen) == position + 1:
            break
    state = begun.state_dict()
    assert state == {"epoch": position // 4, "position": position % 4 + 1}
    resumed = make()
    resumed.load_state_dict(state)
    rest = list(resumed)
    rest += list(resumed) if position < 4 else []
    assert same(seen + rest, batches)


def test_interrupted_pass():
    loader = BatchLoader(numbered(10), 4)
    next(iter(loader))
    assert [len(labels) for _, labels in loader] == [4, 4, 2]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("shuffle", [True, False])
def test_processes(world, shuffle):
    def batches(rank, world):
        options = {"shuffle": shuffle, "augment": Augment(shift=1), "seed": 3}
        return list(BatchLoader(numbered(21), 8, rank=rank, world=world, **options))

    groups = zip(*(batches(rank, world) for rank in range(world)), strict=True)
    joined = [tuple(torch.cat(pieces) for pieces in zip(*group, strict=True)) for group in groups]
    assert same(joined, batches(0, 1))


def test_augmentation_only_when_shuffled():
    plain, fixed = (list(BatchLoader(numbered(8), 4, augment=augment)) for augment in (None, Augment(shift=1)))
    assert same(plain, fixed)
    crops = BatchLoader(numbered(8), 4, augment=Augment(crop=2))
    assert next(iter(crops))[0].shape == (4, 1, 2, 2)


def test_fewer_images_than_a_batch():
    loader = BatchLoader(numbered(5), 100, shuffle=True, world=2)
    assert [len(labels) for _, labels in loader] == [2]


def test_no_images():
    with raises_about(DataError, "data", "got 0", "'arrays'", "'train'"):
        BatchLoader(numbered(5).subset([]), 2)


def test_fewer_images_than_processes():
    with raises_about(DataError, "data", "at least 4", "got 3", "'arrays'"):
        BatchLoader(numbered(3), 4, shuffle=True, world=4)


@pytest.mark.parametrize("size", [0, 3])
def test_wrong_batch_size(size):
    with raises_about(ConfigError, "batch_size", "2 processes", f"got {size}"):
        BatchLoader(numbered(8), size, world=2)


def numbers(loader) -> list[int]:
    return torch.cat([images[:, 0, 1, 1] for images, _ in loader]).mul(255).round().int().tolist()


def test_short_epochs_continue_the_pass():
    loader = BatchLoader(numbered(16), 4, shuffle=True, seed=1, epoch_size=8)
    assert len(loader) == 2
    first, second, third = (numbers(loader) for _ in range(3))
    assert sorted(first + second) == list(range(16))
    # The third epoch starts a new pass.
    whole = BatchLoader(numbered(16), 4, shuffle=True, seed=1)
    assert numbers(whole) == first + second
    assert numbers(whole)[:8] == third


def test_epoch_longer_than_a_pass():
    loader = BatchLoader(numbered(8), 4, shuffle=True, epoch_size=12)
    seen = numbers(loader)
    assert len(seen) == 12
    assert sorted(seen[:8]) == list(range(8))


def test_computed_order(monkeypatch):
    monkeypatch.setattr("torchcaps.data._order.MAX_STORED", 10)
    loader = BatchLoader(numbered(30), 5, shuffle=True, seed=3)
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first not in (second, list(range(30)))
    resumed = BatchLoader(numbered(30), 5, shuffle=True, seed=3)
    resumed.load_state_dict({"epoch": 0, "position": 4})
    assert numbers(resumed) == first[20:]


def test_sources_are_augmented_like_the_image():
    from torchcaps import load_data

    data = load_data("multimnist", "val", source="digits")
    for shuffle, augment in ((True, Augment(shift=3, rotate=10.0, flip=True)), (False, Augment(crop=30))):
        images, labels, sources = next(iter(BatchLoader(data, 20, shuffle=shuffle, augment=augment)))
        assert labels.shape == (20, 2)
        assert sources.shape == (20, 2, *images.shape[1:])
        # Where the sum is not clipped, linear augmentation keeps it the sum of its sources.
        close = (sources.sum(dim=1) - images).abs() < 0.02
        assert close[images < 0.7].float().mean() > 0.97


@pytest.mark.parametrize(("size", "shuffle"), [(3, True), (8, False)])
def test_wrong_epoch_size(size, shuffle):
    with raises_about(ConfigError, "epoch_size", f"got {size}"):
        BatchLoader(numbered(8), 4, shuffle=shuffle, epoch_size=size)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("position", [0, 1, 5])
def test_workers_give_the_same_batches_from_any_position(workers, position):
    def make(workers):
        return BatchLoader(numbered(16), 2, shuffle=True, augment=Augment(shift=1), seed=2, workers=workers)

    alone, ahead = make(0), make(workers)
    for loader in (alone, ahead):
        loader.load_state_dict({"epoch": 1, "position": position})
    assert same(list(alone), list(ahead))
    assert ahead.state_dict() == alone.state_dict() == {"epoch": 1, "position": 8}
    assert same(list(alone), list(ahead))


def test_position_counts_batches_that_were_given_out_by_workers():
    loader = BatchLoader(numbered(16), 2, shuffle=True, workers=2)
    batches = iter(loader)
    for count in (1, 2, 3):
        next(batches)
        assert loader.state_dict() == {"epoch": 0, "position": count}
    del batches


def test_balanced_passes():
    pixels = np.zeros((40, 4, 4), np.uint8)
    data = InMemoryDataset.from_arrays(pixels, (np.arange(40) >= 36).astype(np.int64), class_names="ab")
    loader = BatchLoader(data, 8, shuffle=True, balanced=True)
    for _ in range(2):
        labels = torch.cat([labels for _, labels in loader])
        assert labels.bincount().tolist() == [20, 20]
    with raises_about(ConfigError, "balanced", "shuffle"):
        BatchLoader(data, 8, balanced=True)
