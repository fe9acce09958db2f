from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, InMemoryDataset, load_data, to_float
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.evaluation import CORRUPTIONS, corrupted
from torchcaps.evaluation.corruptions import SEVERITIES

KINDS = CORRUPTIONS.names()


@pytest.fixture(scope="module")
def some() -> ImageDataset:
    return load_data("digits", "test").subset(range(0, 1000, 40))


@pytest.mark.parametrize("kind", KINDS)
def test_severity_is_monotonic(kind: str, some: ImageDataset) -> None:
    clean = to_float(some.images)
    damage = [(to_float(corrupted(some, kind, level).images) - clean).square().mean().item() for level in SEVERITIES]
    assert damage[0] > 0
    assert damage == sorted(damage)
    assert damage[-1] > 1.5 * damage[0]


@pytest.mark.parametrize("kind", KINDS)
def test_corruption_depends_on_seed_not_batch(kind: str, some: ImageDataset) -> None:
    data = corrupted(some, kind, 3)
    whole = data.images
    assert torch.equal(data.batch([7, 2]).images, whole[[7, 2]])
    assert torch.equal(corrupted(some, kind, 3).images, whole)
    other = corrupted(some, kind, 3, seed=1).images
    assert torch.equal(other, whole) == (kind not in ("gaussian_noise", "impulse_noise", "speckle_noise", "occlusion"))


@pytest.mark.parametrize("kind", KINDS)
def test_any_size_and_number_of_channels(kind: str) -> None:
    images = torch.randint(256, (3, 3, 20, 33), dtype=torch.uint8)
    data = corrupted(InMemoryDataset.from_arrays(images, [0, 1, 2]), kind, 5)
    assert data.image_shape == (3, 20, 33)
    assert not torch.equal(data.images, images)


def test_labels_and_class_names_stay(some: ImageDataset) -> None:
    data = corrupted(some, "gaussian_blur", 2)
    assert torch.equal(data.labels, some.labels)
    assert data.name == "digits"
    assert data.origin == "embedded in torchcaps, gaussian blur of severity 2"


def test_noise_deviation() -> None:
    grey = InMemoryDataset.from_arrays(torch.full((20, 1, 40, 40), 128, dtype=torch.uint8), [0] * 20)
    noise = to_float(corrupted(grey, "gaussian_noise", 1).images) - 128 / 255
    assert abs(noise.mean().item()) < 0.002
    assert noise.std().item() == pytest.approx(0.08, rel=0.02)


def test_blur_keeps_constant_images_and_brightness() -> None:
    even = InMemoryDataset.from_arrays(torch.full((1, 1, 12, 12), 77, dtype=torch.uint8), [0])
    for kind in ("gaussian_blur", "motion_blur", "pixelate"):
        assert torch.equal(corrupted(even, kind, 5).images, even.images)


@pytest.mark.parametrize("severity", [0, 6])
def test_unknown_severity(severity: int, some: ImageDataset) -> None:
    with raises_about(ConfigError, "severity", severity):
        corrupted(some, "contrast", severity)


def test_unknown_corruption(some: ImageDataset) -> None:
    with raises_about(UnknownNameError, "corruption", "contrst", "contrast"):
        corrupted(some, "contrst", 1)
