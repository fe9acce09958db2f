import math

import pytest
import torch

from raising import raises_about
from torchcaps.data import Augment, transforms
from torchcaps.data.augment import _Draw
from torchcaps.errors import ConfigError, ShapeError

EVERYTHING = Augment(
    shift=2,
    rotate=15,
    scale=0.1,
    shear=0.1,
    elastic=1.5,
    flip=True,
    erase=0.3,
    brightness=0.2,
    contrast=0.5,
    crop=20,
    resized_crop=0.5,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_identity():
    images = torch.rand(4, 1, 28, 28)
    state = generator()
    before = state.get_state()
    assert torch.equal(Augment()(images, state), images)
    assert torch.equal(state.get_state(), before)
    assert torch.equal(Augment().fixed(images), images)


def test_reproducible():
    images = torch.rand(16, 2, 28, 28)
    copy = images.clone()
    first = EVERYTHING(images, generator(3))
    assert torch.equal(first, EVERYTHING(images, generator(3)))
    assert not torch.equal(first, EVERYTHING(images, generator(4)))
    assert torch.equal(images, copy)


def as_indices(shift: int) -> torch.Tensor:
    """Where a dot in the middle goes, for many samples: [N, 2]."""
    images = torch.zeros(2000, 1, 11, 11)
    images[:, 0, 5, 5] = 1
    moved = Augment(shift=shift)(images, generator())
    assert torch.equal(moved.sum(dim=(1, 2, 3)), torch.ones(2000))
    return moved[:, 0].nonzero()[:, 1:] - 5


def test_shifts_per_image():
    offsets = as_indices(2)
    assert len({tuple(offset) for offset in offsets.tolist()}) == 25
    counts = torch.bincount((offsets[:, 0] + 2) * 5 + offsets[:, 1] + 2, minlength=25)
    # 80 of each are expected, with a deviation of 9.
    assert counts.min() > 40
    assert counts.max() < 120


@pytest.mark.parametrize("shift", [1, 3])
def test_shift_range(shift):
    assert as_indices(shift).abs().max() == shift


def test_shift_does_not_wrap():
    images = torch.zeros(500, 1, 8, 8)
    images[:, :, 0] = 1
    moved = Augment(shift=3)(images, generator())
    assert moved[:, :, 4:].max() == 0


def test_shift_is_exact():
    images = torch.rand(50, 1, 8, 8)
    values = set(images.flatten().tolist()) | {0.0}
    assert set(Augment(shift=3)(images, generator()).flatten().tolist()) <= values


def test_flip():
    images = torch.rand(1000, 1, 4, 5)
    flipped = Augment(flip=True)(images, generator())
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 400 < mirrored.sum() < 600


def test_rotate_range():
    # The angle of a bar to the right of the centre.
    images = torch.zeros(500, 1, 41, 41)
    images[:, :, 20, 25:38] = 1
    turned = Augment(rotate=20)(images, generator())[:, 0]
    y, x = torch.meshgrid(20 - torch.arange(41.0), torch.arange(41.0) - 20, indexing="ij")
    angles = torch.rad2deg(torch.atan2((turned * y).sum((1, 2)), (turned * x).sum((1, 2))))
    assert angles.max() == pytest.approx(20, abs=0.7)
    assert angles.min() == pytest.approx(-20, abs=0.7)


def test_scale_range():
    images = torch.zeros(500, 1, 41, 41)
    images[:, :, 11:30, 11:30] = 1
    area = Augment(scale=0.2)(images, generator()).sum(dim=(1, 2, 3)) / 19**2
    assert area.sqrt().max() == pytest.approx(1.2, abs=0.02)
    assert area.sqrt().min() == pytest.approx(0.8, abs=0.02)


def test_elastic_range():
    # Each pixel holds its column: a pixel of the result shows where it comes from.
    columns = torch.arange(29.0).expand(500, 1, 29, 29) / 28
    moved = (Augment(elastic=2)(columns, generator()) - columns)[:, 0, 7:22:7, 7:22:7] * 28  # on points of the grid
    assert moved.max() == pytest.approx(2, abs=0.05)
    assert moved.min() == pytest.approx(-2, abs=0.05)
    one, other = moved[:, 0, 0], moved[:, 1, 1]
    assert torch.corrcoef(torch.stack([one, other]))[0, 1].abs() < 0.15


def test_warp_prob():
    images = torch.rand(400, 1, 28, 28)
    out = Augment(rotate=10, elastic=1, warp_prob=0.25)(images, generator())
    changed = (out != images).flatten(1).any(dim=1)  # [B]
    assert 60 < changed.sum() < 140
    # Those that are bent are bent as they would be if all were.
    assert torch.equal(out[changed], Augment(rotate=10, elastic=1)(images, generator())[changed])
    assert torch.equal(Augment(rotate=10, elastic=1, warp_prob=0)(images, generator()), images)


def test_values_stay_in_range():
    out = Augment(rotate=30, scale=0.3, shear=0.3, elastic=3)(torch.rand(64, 1, 28, 28), generator())
    assert out.min() >= 0
    assert out.max() <= 1


def test_erase():
    images = torch.ones(3000, 1, 10, 20)
    gone = Augment(erase=0.4)(images, generator())[:, 0] == 0
    heights, widths = gone.any(2).sum(1), gone.any(1).sum(1)
    assert heights.max() == 4
    assert widths.max() == 8
    # A rectangle, whole and inside.
    assert torch.equal(gone.sum((1, 2)), heights * widths)
    # Some rectangles are empty, and every pixel is erased now and then.
    assert heights.min() == 0
    assert gone.any(0).all()


def test_brightness_and_contrast():
    images = torch.full((1000, 1, 2, 2), 0.5)
    brighter = Augment(brightness=0.2)(images, generator()) - images
    assert brighter.max() == pytest.approx(0.2, abs=0.01)
    assert brighter.min() == pytest.approx(-0.2, abs=0.01)
    images[:, :, 0] = 0.7
    images[:, :, 1] = 0.3
    contrast = Augment(contrast=0.5)(images, generator())
    spread = (contrast[:, 0, 0, 0] - contrast[:, 0, 1, 0]) / 0.4
    assert spread.max() == pytest.approx(1.5, abs=0.01)
    assert spread.min() == pytest.approx(0.5, abs=0.01)


def test_crop():
    images = torch.rand(1, 2, 7, 8).repeat(500, 1, 1, 1)
    augment = Augment(crop=5)
    cut = augment(images, generator())
    assert cut.shape == (500, 2, 5, 5)
    seen = {
        (top, left)
        for top in range(3)
        for left in range(4)
        if (cut == images[:, :, top : top + 5, left : left + 5]).flatten(1).all(1).any()
    }
    assert len(seen) == 12
    assert torch.equal(augment.fixed(images), images[..., 1:6, 1:6])
    assert augment.output_shape((2, 7, 8)) == (2, 5, 5)
    assert Augment().output_shape((2, 7, 8)) == (2, 7, 8)


def test_crop_too_large():
    for run in (lambda images: Augment(crop=9)(images, generator()), Augment(crop=9).fixed):
        with raises_about(ShapeError, "images"):
            run(torch.zeros(1, 1, 8, 8))


def test_fixed():
    images = torch.rand(4, 1, 28, 28)
    expected = images[..., 4:24, 4:24]
    assert torch.equal(EVERYTHING.fixed(images), expected)


@pytest.mark.parametrize("name", ["shift", "crop"])
@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_wrong_pixels(name, value):
    with raises_about(ConfigError, f"{name}", f"got {value}"):
        Augment(**{name: value})


@pytest.mark.parametrize(
    "name", ["rotate", "scale", "shear", "elastic", "warp_prob", "erase", "brightness", "contrast"]
)
@pytest.mark.parametrize("value", [-0.1, 1000, float("nan"), True])
def test_wrong_ranges(name, value):
    with raises_about(ConfigError, f"{name}", f"got {value}"):
        Augment(**{name: value})


@pytest.mark.parametrize("images", [torch.zeros(8, 8), torch.zeros(1, 1, 8, 8, dtype=torch.uint8)])
def test_wrong_images(images):
    for run in (lambda images: Augment(shift=1)(images, generator()), Augment().fixed):
        with raises_about(ShapeError, "images", "got torch"):
            run(images)


def test_resized_crop_shows_a_window_of_the_image():
    rows = torch.linspace(0, 1, 32).view(1, 1, 32, 1).expand(500, 1, 32, 32)
    for images, axis in ((rows, 2), (rows.mT, 3)):
        zoomed = Augment(resized_crop=0.6)(images, generator())
        first, last = zoomed.select(axis, 0).mean((1, 2)), zoomed.select(axis, 31).mean((1, 2))
        spans = last - first
        assert zoomed.shape == images.shape
        # A window of at least 0.4 of the area, 3/4 to 4/3 as wide as high.
        assert spans.min() > (0.4 * 3 / 4) ** 0.5 - 0.05
        assert spans.max() <= 1.001
        assert spans.std() > 0.05
        assert first.std() > 0.03


def test_resized_crop_of_nothing_changes_nothing():
    images = torch.rand(4, 3, 9, 12)
    ones, zeros = torch.ones(4), torch.zeros(4)
    torch.testing.assert_close(transforms.resample(images, transforms.window_map(zeros, zeros, ones, ones)), images)


def test_colours_turn_about_grey():
    images = torch.rand(6, 3, 5, 5) * 0.5 + 0.25
    grey = images.mean(1, keepdim=True)
    ones, zeros = torch.ones(6), torch.zeros(6)
    torch.testing.assert_close(transforms.recolour(images, ones, zeros), images)
    torch.testing.assert_close(transforms.recolour(images, zeros, zeros), grey.expand_as(images))
    # A third of a turn exchanges the channels.
    turned = transforms.recolour(images, ones, torch.full((6,), 2 * math.pi / 3))
    torch.testing.assert_close(turned, images.roll(1, dims=1))
    jittered = Augment(saturation=0.3, hue=0.05)(images, generator())
    torch.testing.assert_close(jittered.mean(1, keepdim=True), grey, atol=0.02, rtol=0)
    assert not torch.allclose(jittered, images, atol=0.01)


@pytest.mark.parametrize("augment", [Augment(hue=0.1), Augment(saturation=0.1)])
def test_colours_of_grey_images(augment):
    with raises_about(ShapeError, "images", "3 channels", "(2, 1, 8, 8)"):
        augment(torch.rand(2, 1, 8, 8), generator())


@pytest.mark.parametrize(("name", "value"), [("resized_crop", 0.99), ("saturation", -0.1), ("hue", 0.6), ("mixup", -1)])
def test_colour_and_crop_out_of_range(name, value):
    with raises_about(ConfigError, f"{name}", f"got {value}"):
        Augment(**{name: value})


def test_one_interpolation_does_what_single_steps_do() -> None:
    # A smooth image, which a second interpolation hardly blurs.
    rows, cols = torch.meshgrid(torch.linspace(0, 3, 48), torch.linspace(0, 2, 48), indexing="ij")
    image = torch.stack([rows.sin(), (rows + 2 * cols).cos(), cols.sin()]) / 4 + 0.5
    images = image.expand(8, 3, 48, 48)
    augment = Augment(rotate=20, scale=0.2, shear=0.1, warp_prob=0.5, flip=True, turn=True, resized_crop=0.5)
    together = augment(images, torch.Generator().manual_seed(3))
    steps = augment._move(images, _Draw(8, images, torch.Generator().manual_seed(3)))
    inner = (slice(None), slice(None), slice(10, -10), slice(10, -10))
    torch.testing.assert_close(together[inner], steps[inner], atol=0.01, rtol=0)
    assert not torch.allclose(together[inner], images[inner], atol=0.05)


def test_colours_and_light_in_one_product() -> None:
    images = 0.4 + 0.2 * torch.rand(5, 3, 9, 7)  # far from 0 and 1, where a step alone would clamp
    values = torch.linspace(0.8, 1.2, 5)
    steps = transforms.relight(transforms.recolour(images, values, 1 - values), (values - 1) / 4, values.flip(0))
    torch.testing.assert_close(transforms.recolour(images, values, 1 - values, (values - 1) / 4, values.flip(0)), steps)


def test_quarter_turns() -> None:
    images = torch.rand(64, 3, 6, 6)
    turned = Augment(turn=True)(images, torch.Generator().manual_seed(0))
    counts = [
        sum(torch.equal(each, image.rot90(k, (-2, -1))) for each, image in zip(turned, images, strict=True))
        for k in range(4)
    ]
    assert sum(counts) == 64
    assert min(counts) > 5


def test_quarter_turns_of_oblong_images() -> None:
    with raises_about(ShapeError, "images", "(2, 3, 4, 5)"):
        Augment(turn=True)(torch.rand(2, 3, 4, 5), torch.Generator())
