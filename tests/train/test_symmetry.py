"""Whether mirrored and turned images can be distinguished from the originals."""

import torch
from torch.nn import functional as F

from torchcaps.data import load_data
from torchcaps.train.symmetry import MIN_IMAGES, find_symmetry


def test_digits_have_an_upper_side_and_a_left_one() -> None:
    found = find_symmetry(load_data("digits").batch(torch.arange(600)).images.float() / 255)
    assert found is not None
    assert found.mirrored > 0.8
    assert not found.flips
    assert not found.turns


def test_digits_mirrored_at_random_have_an_upper_side_alone() -> None:
    images = load_data("digits").batch(torch.arange(900)).images.float()
    mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
    found = find_symmetry(torch.where(mirrored, images.flip(-1), images))
    assert found is not None
    assert found.flips
    assert found.turned > 0.8
    assert not found.turns


def test_textures_have_no_upper_side() -> None:
    noise = F.avg_pool2d(torch.rand(900, 3, 40, 40), 5, stride=1)
    found = find_symmetry(noise)
    assert found is not None
    assert found.turns


def test_blank_images_are_in_order_by_chance() -> None:
    found = find_symmetry(torch.full((300, 3, 20, 20), 0.3))
    assert found is not None
    assert found.mirrored == found.turned == 0.5


def test_too_few_images_for_a_judgement() -> None:
    assert find_symmetry(torch.rand(MIN_IMAGES - 1, 1, 8, 8)) is None
