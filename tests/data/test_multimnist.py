from __future__ import annotations

import numpy as np
import pytest
import torch

import torchcaps as tc
from fresh import run_fresh
from raising import raises_about
from torchcaps.data import BatchLoader, ImageDataset, InMemoryDataset, load_digits
from torchcaps.data._generators import stream
from torchcaps.data.counter_rng import uniforms
from torchcaps.data.multimnist import OverlappingDigits
from torchcaps.errors import ConfigError


def load(split: str = "train", **options):
    return tc.load_data("multimnist", split, source="digits", **options)


def reference(
    digits: ImageDataset, repeats: int, key: int, number: int
) -> tuple[np.ndarray, list[int], list[np.ndarray], float]:
    """One sample by section 6.1 of the paper, pixel by pixel."""
    draws = uniforms(key, np.array([number]), 5)[0]
    first = number // repeats
    labels = digits.labels.tolist()
    others = sorted((k for k in range(len(labels)) if labels[k] != labels[first]), key=lambda k: (labels[k], k))
    second = others[int(draws[0] * len(others))]
    canvases, boxes = [], []
    for which, (down, right) in zip((first, second), draws[1:].reshape(2, 2), strict=True):
        # Padded to 36x36: the digit in the middle, 4 pixels from each edge; then moved by -4 to 4.
        top, left = 4 + int(9 * down) - 4, 4 + int(9 * right) - 4
        canvas = np.zeros((36, 36), int)
        for y in range(28):
            for x in range(28):
                canvas[top + y, left + x] = digits.images[which, 0, y, x]
        canvases.append(canvas)
        box = np.zeros((36, 36), bool)
        box[top : top + 28, left : left + 28] = True
        boxes.append(box)
    overlap = (boxes[0] & boxes[1]).sum() / boxes[0].sum()
    return np.minimum(255, sum(canvases)), [labels[first], labels[second]], canvases, overlap


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_matches_reference(split):
    digits, data = load_digits(split), load(split, seed=3)
    repeats = 1000 if split == "train" else 1
    numbers = [0, 1, len(data) // 2, len(data) - 1]
    batch = data.batch(numbers)
    assert batch.sources is not None
    for k, number in enumerate(numbers):
        image, labels, sources, overlap = reference(digits, repeats, stream("multimnist", split, 3), number)
        assert np.array_equal(batch.images[k, 0], image)
        assert batch.labels[k].tolist() == labels
        assert np.array_equal(batch.sources[k, :, 0], sources)
        assert batch.meta["overlap"][k].item() == pytest.approx(overlap)


def test_classes_differ():
    batch = load().batch(torch.arange(0, 4_500_000, 97))
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()


def test_samples_of_one_digit():
    data = load()
    assert len(data) == 4500 * 1000
    batch = data.batch(torch.arange(7000, 8000))
    assert (batch.labels[:, 0] == load_digits("train").labels[7]).all()
    assert len(batch.labels[:, 1].unique()) == 9
    assert batch.sources is not None
    # Each of the two is moved on its own: 81 places for the one digit, whatever the other does.
    first = batch.sources[:, 0].flatten(1).unique(dim=0)
    assert len(first) == 81
    assert len(batch.images.flatten(1).unique(dim=0)) > 990


def test_shifts_are_uniform_and_independent():
    batch = load().batch(torch.arange(0, 4_500_000, 450))
    assert batch.sources is not None
    centres = []
    for axis in (-1, -2):
        line = batch.sources.float().sum(dim=axis)[:, :, 0]  # [n, 2, 36]
        centres.append((line * torch.arange(36)).sum(-1) / line.sum(-1))
    table = torch.cat(centres, dim=1).T  # [4, n]
    assert (torch.corrcoef(table) - torch.eye(4)).abs().max() < 0.06
    # MNIST centres the mass of its digits at pixel 14 of 28.
    assert (table.mean(1) - 18).abs().max() < 0.2


def test_mean_overlap():
    overlap = load().batch(torch.arange(0, 4_500_000, 100)).meta["overlap"]
    assert overlap.mean().item() == pytest.approx(0.80, abs=0.005)
    assert overlap.min() >= (20 / 28) ** 2 - 1e-6
    assert overlap.max() == 1


def test_sums_are_clipped():
    white = InMemoryDataset.from_arrays(np.full((2, 28, 28), 200, np.uint8), [0, 1])
    batch = OverlappingDigits(white, 5, 1)(torch.arange(10))
    assert set(batch.images.unique().tolist()) <= {0, 200, 255}
    assert (batch.images == 255).any()


def test_sample_does_not_depend_on_the_batch():
    data = load()
    numbers = torch.tensor([4_499_999, 12, 77_777, 12, 0])
    together = data.batch(numbers)
    for k, number in enumerate(numbers.tolist()):
        alone = data.batch([number])
        assert torch.equal(alone.images[0], together.images[k])
        assert torch.equal(alone.labels[0], together.labels[k])
    assert torch.equal(load().batch(numbers).images, together.images)
    assert not torch.equal(load(seed=1).batch(numbers).images, together.images)


def test_same_in_another_process():
    code = (
        "import torchcaps as tc; d = tc.load_data('multimnist', 'train', source='digits');"
        "print(d.batch([123456]).images.sum().item(), d.batch([123456]).labels.tolist())"
    )
    out = run_fresh(code).stdout.strip()
    batch = load().batch([123456])
    assert out == f"{batch.images.sum().item()} {batch.labels.tolist()}"


def test_resume():
    def make():
        return BatchLoader(load(), 16, shuffle=True, seed=4, epoch_size=48)

    whole = [batch for loader in [make()] for _ in range(2) for batch in loader]
    begun = make()
    iterator = iter(begun)
    next(iterator)
    resumed = make()
    resumed.load_state_dict(begun.state_dict())
    rest = [batch for _ in range(2) for batch in resumed]
    assert len(rest) == len(whole) - 1 == 5
    for expected, got in zip(whole[1:], rest, strict=True):
        assert all(map(torch.equal, expected, got))


def test_splits_use_their_own_digits():
    digits = {split: set(map(bytes, load_digits(split).images.flatten(1).numpy())) for split in ("train", "val")}
    batch = load("val", test_repeats=2).batch(torch.arange(1000))
    assert batch.sources is not None
    for source in batch.sources[::50].flatten(0, 1)[:, 0]:
        windows = source.unfold(0, 28, 1).unfold(1, 28, 1).reshape(-1, 28 * 28)
        found = {bytes(window) for window in windows.numpy()}
        assert found & digits["val"]
        assert not found & digits["train"]


def test_all_overlaps_of_small_digits():
    data = load("test", shift=7, halved=True, test_repeats=4)
    assert data.image_shape == (1, 28, 28)
    overlap = data.meta["overlap"]
    # Boxes of 14 that are shifted by 0 to 14 pixels: from none to all.
    assert (overlap.min(), overlap.max()) == (0, 1)
    small = load_digits("test").images.float().unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))
    batch = data.batch([0, 4])
    assert batch.sources is not None
    mass = batch.sources[:, 0].float().sum((1, 2, 3))
    assert mass.tolist() == pytest.approx(small[:2].sum((1, 2, 3)).tolist(), abs=196)


@pytest.mark.parametrize("shift", [-1, 29])
def test_shift_out_of_range(shift):
    with raises_about(ConfigError, "shift", str(shift)):
        load(shift=shift)
