import pytest
import torch

from raising import raises_about
from torchcaps.data._split import complement, sample_per_class, split_indices, stratified_counts
from torchcaps.errors import ConfigError


def test_sample_per_class():
    labels = torch.arange(300) % 3
    chosen = sample_per_class(labels, [5, 0, 7], seed=1)
    assert labels[chosen].bincount(minlength=3).tolist() == [5, 0, 7]
    assert chosen.tolist() == sorted(set(chosen.tolist()))


def test_sample_depends_on_the_seed():
    labels = torch.zeros(1000, dtype=torch.int64)
    first = sample_per_class(labels, [50], seed=1)
    assert torch.equal(first, sample_per_class(labels, [50], seed=1))
    assert not torch.equal(first, sample_per_class(labels, [50], seed=2))
    # Spread over all, not taken from the front.
    assert int(first.max()) > 900
    assert int(first.min()) < 100


@pytest.mark.parametrize("size", [0, 1, 7, 99])
def test_stratified_counts(size):
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    counts = stratified_counts(labels, size, 3)
    assert sum(counts) == size
    assert all(abs(count - size * share) < 1 for count, share in zip(counts, (0.6, 0.3, 0.1), strict=True))


@pytest.mark.parametrize("size", [-1, 100])
def test_wrong_val_size(size):
    with raises_about(ConfigError, "val_size", "0 to 99", f"got {size}"):
        stratified_counts(torch.zeros(100, dtype=torch.int64), size, 1)


def test_complement():
    assert complement(torch.tensor([1, 4]), 6).tolist() == [0, 2, 3, 5]


def test_splits_partition_the_data():
    labels = torch.arange(40) % 4
    train, val = (split_indices(labels, split, 8, 4, seed=1) for split in ("train", "val"))
    assert isinstance(train, torch.Tensor)
    assert isinstance(val, torch.Tensor)
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(40))
    assert labels[val].bincount().tolist() == [2, 2, 2, 2]
    for split in ("test", "train+val"):
        assert torch.equal(labels[split_indices(labels, split, 8, 4, seed=1)], labels)
