import pytest
import torch

from torchcaps.data._split import choose_part, draw_per_class, others, stratified_counts
from torchcaps.errors import ConfigError


def test_draw_takes_the_counts_of_each_class_in_rising_order():
    labels = torch.arange(300) % 3
    chosen = draw_per_class(labels, [5, 0, 7], seed=1)
    assert labels[chosen].bincount(minlength=3).tolist() == [5, 0, 7]
    assert chosen.tolist() == sorted(set(chosen.tolist()))


def test_draw_is_fixed_by_the_seed():
    labels = torch.zeros(1000, dtype=torch.int64)
    first = draw_per_class(labels, [50], seed=1)
    assert torch.equal(first, draw_per_class(labels, [50], seed=1))
    assert not torch.equal(first, draw_per_class(labels, [50], seed=2))
    # Spread over all, not taken from the front.
    assert int(first.max()) > 900
    assert int(first.min()) < 100


@pytest.mark.parametrize("size", [0, 1, 7, 99])
def test_counts_add_up_and_keep_the_proportions(size):
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    counts = stratified_counts(labels, size, 3)
    assert sum(counts) == size
    assert all(abs(count - size * share) < 1 for count, share in zip(counts, (0.6, 0.3, 0.1), strict=True))


@pytest.mark.parametrize("size", [-1, 100])
def test_size_must_leave_training_images(size):
    with pytest.raises(ConfigError, match=f"val_size: expected 0 to 99 images, got {size}"):
        stratified_counts(torch.zeros(100, dtype=torch.int64), size, 1)


def test_others_are_the_rest():
    assert others(torch.tensor([1, 4]), 6).tolist() == [0, 2, 3, 5]


def test_parts_come_together_again():
    labels = torch.arange(40) % 4
    train, val = (choose_part(labels, split, 8, 4, seed=1) for split in ("train", "val"))
    assert isinstance(train, torch.Tensor)
    assert isinstance(val, torch.Tensor)
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(40))
    assert labels[val].bincount().tolist() == [2, 2, 2, 2]
    for split in ("test", "train+val"):
        assert torch.equal(labels[choose_part(labels, split, 8, 4, seed=1)], labels)
