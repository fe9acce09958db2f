import math

import pytest
import torch

from raising import raises_about
from torchcaps.data import CROPS_13, crop, shrink
from torchcaps.data.transforms import affine, erase, relight, shift, windows
from torchcaps.errors import ShapeError


def ones(value: float, count: int = 3) -> torch.Tensor:
    return torch.full((count,), value)


def test_windows():
    images = torch.rand(4, 2, 6, 7)
    tops, lefts = torch.tensor([0, 1, 2, 3]), torch.tensor([4, 3, 2, 0])
    cut = windows(images, tops, lefts, 3, 3)
    for image, part, top, left in zip(images, cut, tops, lefts, strict=True):
        assert torch.equal(part, image[:, top : top + 3, left : left + 3])


@pytest.mark.parametrize("down", [-9, -2, 0, 1, 9])
@pytest.mark.parametrize("right", [-1, 0, 3])
def test_shift(down, right):
    images = torch.rand(2, 1, 5, 6) + 1
    moved = shift(images, torch.full((2,), down), torch.full((2,), right))
    for row in range(5):
        for col in range(6):
            inside = 0 <= row - down < 5 and 0 <= col - right < 6
            expected = images[:, 0, row - down, col - right] if inside else torch.zeros(2)
            assert torch.equal(moved[:, 0, row, col], expected)


def test_shift_of_an_empty_batch():
    assert shift(torch.zeros(0, 1, 5, 5), torch.zeros(0).long(), torch.zeros(0).long()).shape == (0, 1, 5, 5)


def test_affine_identity():
    images = torch.rand(3, 2, 5, 8)
    assert torch.allclose(affine(images, ones(0.0), ones(1.0), ones(0.0)), images, atol=1e-6)


def test_affine_rotation():
    images = torch.rand(3, 2, 6, 6)
    assert torch.allclose(affine(images, ones(math.pi / 2), ones(1.0), ones(0.0)), images.rot90(1, (2, 3)), atol=1e-5)


def test_affine_oblong_image():
    # A horizontal bar of nine pixels in the centre becomes a vertical one.
    images = torch.zeros(1, 1, 21, 41)
    images[0, 0, 10, 16:25] = 1
    turned = affine(images, ones(math.pi / 2, 1), ones(1.0, 1), ones(0.0, 1))
    expected = torch.zeros(1, 1, 21, 41)
    expected[0, 0, 6:15, 20] = 1
    assert torch.allclose(turned, expected, atol=1e-4)


def test_affine_scale():
    images = torch.zeros(1, 1, 21, 41)
    images[0, 0, 8:13, 18:23] = 1
    assert affine(images, ones(0.0, 1), ones(2.0, 1), ones(0.0, 1)).sum() == pytest.approx(100, rel=0.01)


def test_affine_shear():
    images = torch.zeros(1, 1, 11, 11)
    images[0, 0, :, 5] = 1
    sheared = affine(images, ones(0.0, 1), ones(1.0, 1), ones(1.0, 1))
    assert torch.allclose(sheared[0, 0], torch.eye(11).flip(0), atol=1e-5)


def test_affine_moves():
    images = torch.rand(2, 1, 9, 12)
    moves = torch.zeros(2, 2, 3, 3)
    moves[0, 0], moves[1, 1] = 1, -2  # one pixel to the right of the first, two above in the second
    bent = affine(images, ones(0.0, 2), ones(1.0, 2), ones(0.0, 2), moves)
    assert torch.allclose(bent[0, :, :, :-1], images[0, :, :, 1:], atol=1e-5)
    assert torch.allclose(bent[1, :, 2:], images[1, :, :-2], atol=1e-5)


def test_erase():
    images = torch.ones(2, 3, 5, 6)
    gone = erase(images, torch.tensor([1, 0]), torch.tensor([2, 0]), torch.tensor([3, 0]), torch.tensor([2, 6]))
    expected = images.clone()
    expected[0, :, 1:4, 2:4] = 0
    assert torch.equal(gone, expected)
    assert images.min() == 1


def test_relight():
    images = torch.tensor([0.2, 0.4]).view(1, 1, 1, 2)
    changed = relight(images, torch.tensor([0.1]), torch.tensor([2.0]))
    assert torch.allclose(changed.flatten(), torch.tensor([0.2, 0.6]))
    assert relight(images, torch.tensor([0.9]), torch.tensor([1.0])).max() == 1


def test_thirteen_crops():
    assert len(set(CROPS_13)) == 13
    assert CROPS_13[0] == (0, 0)
    assert all(abs(down) == abs(right) <= 3 for down, right in CROPS_13)
    assert {(-1, 1), (2, 2), (3, -3)} <= set(CROPS_13)


def test_crop_at_an_offset():
    images = torch.rand(2, 2, 48, 48)
    assert torch.equal(crop(images, 32), images[..., 8:40, 8:40])
    assert torch.equal(crop(images, 32, -3, 2), images[..., 5:37, 10:42])


@pytest.mark.parametrize(("size", "place"), [(33, (0, 0)), (30, (2, 0)), (30, (0, -2))])
def test_crop_that_does_not_fit(size, place):
    with raises_about(ShapeError, "images", f"for a crop of {size} at", "got 32x32"):
        crop(torch.zeros(1, 1, 32, 32), size, *place)


def test_shrink():
    images = torch.randint(0, 256, (3, 2, 8, 8), dtype=torch.uint8)
    expected = torch.nn.functional.avg_pool2d(images.double(), 2)
    assert (shrink(images, 4) - expected).abs().max() <= 0.5
    assert torch.equal(shrink(images, 8), images)


@pytest.mark.parametrize("size", [0, 5, 16])
def test_shrink_wrong_size(size):
    with raises_about(ShapeError, "image_size", f"got {size}"):
        shrink(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), size)
