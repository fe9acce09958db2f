import pytest
import torch

from torchcaps.data._order import balanced_order


@pytest.mark.parametrize("counts", [(50, 3, 7), (10, 10), (1, 100)])
def test_classes_are_equally_frequent(counts):
    labels = torch.cat([torch.full((count,), k) for k, count in enumerate(counts)])
    order = balanced_order(3, labels)(0, len(labels))
    found = labels[order].bincount(minlength=len(counts))
    assert len(order) == len(labels)
    assert found.max() - found.min() <= len(counts)
    # No image is repeated before every other of its class was taken.
    for k, count in enumerate(counts):
        uses = order[labels[order] == k].bincount(minlength=len(labels))[labels == k]
        assert int(uses.max() - uses.min()) <= 1 + (int(found[k]) < count)


def test_the_order_depends_on_the_seed_alone():
    labels = torch.tensor([0] * 9 + [1])
    first, second, other = (balanced_order(seed, labels)(0, 10).tolist() for seed in (1, 1, 2))
    assert first == second != other


def test_a_class_without_images():
    labels = torch.tensor([0, 0, 2, 2])
    assert labels[balanced_order(0, labels)(0, 4)].bincount().tolist() == [2, 0, 2]
