import numpy as np
import pytest
import torch

from torchcaps.data import ImageData, to_float
from torchcaps.errors import DataError, ShapeError


def make(images=None, labels=None, **others) -> ImageData:
    images = torch.zeros(4, 1, 5, 6, dtype=torch.uint8) if images is None else images
    labels = torch.tensor([0, 1, 1, 0]) if labels is None else labels
    return ImageData("made", "train", images, labels, ("a", "b"), "here", **others)


def test_shape_and_counts():
    data = make()
    assert (len(data), data.image_shape, data.num_classes) == (4, (1, 5, 6), 2)


def test_subset_takes_images_labels_and_meta_in_order():
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    part = make(images, meta={"view": torch.tensor([10, 11, 12, 13])}).subset([2, 0])
    assert part.images.flatten().tolist() == [2, 0]
    assert part.labels.tolist() == [1, 0]
    assert part.meta["view"].tolist() == [12, 10]
    assert part.class_names == ("a", "b")


def test_subset_by_mask_and_of_nothing():
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    assert make(images).subset(torch.tensor([False, True, False, True])).images.flatten().tolist() == [1, 3]
    assert len(make(images).subset([])) == 0


@pytest.mark.parametrize("images", [torch.zeros(4, 5, 6, dtype=torch.uint8), torch.zeros(4, 1, 5, 6)])
def test_images_are_bytes_of_four_axes(images):
    with pytest.raises(ShapeError, match=r"images: expected uint8 \[N, C, H, W\], got torch"):
        make(images)


@pytest.mark.parametrize("labels", [torch.zeros(4, 1, dtype=torch.int64), torch.zeros(4)])
def test_labels_are_whole_numbers_of_one_axis(labels):
    with pytest.raises(ShapeError, match=r"labels: expected int64 \[N\], got torch"):
        make(labels=labels)


def test_as_many_labels_as_images():
    with pytest.raises(DataError, match=r"labels: expected one for each of 4 images, got 3 \(of here\)"):
        make(labels=torch.tensor([0, 1, 0]))


@pytest.mark.parametrize("wrong", [-1, 2])
def test_labels_stay_within_the_classes(wrong):
    with pytest.raises(DataError, match="labels: expected class numbers from 0 to 1, got "):
        make(labels=torch.tensor([0, 1, wrong, 0]))


def test_as_many_meta_values_as_images():
    with pytest.raises(DataError, match="meta 'view': expected 4 values, got 1"):
        make(meta={"view": torch.tensor([1])})


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 1, 4, 5), (3, 2, 4, 5)])
def test_arrays_of_bytes_stay_exact(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = ImageData.from_arrays(pixels, np.array([0, 2, 1], np.int32))
    assert np.array_equal(data.images.numpy().reshape(shape), pixels)
    assert data.class_names == ("0", "1", "2")
    assert data.labels.dtype == torch.int64


def test_arrays_are_copied():
    pixels = np.zeros((1, 2, 2), np.uint8)
    data = ImageData.from_arrays(pixels, [0])
    pixels[:] = 9
    assert int(data.images.max()) == 0


def test_arrays_in_any_order_of_memory():
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 3, 2).transpose(2, 1, 0)
    assert np.array_equal(ImageData.from_arrays(pixels, [0, 0]).images[:, 0].numpy(), pixels)


def test_arrays_of_floats_become_bytes():
    data = ImageData.from_arrays(torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3), [0])
    assert data.images.flatten().tolist() == [0, 128, 255]


@pytest.mark.parametrize("shape", [(4,), (1, 1, 1, 1, 1)])
def test_arrays_of_other_axes_are_refused(shape):
    with pytest.raises(ShapeError, match=r"images: expected \[N, H, W\] or \[N, C, H, W\], got .* axes"):
        ImageData.from_arrays(np.zeros(shape, np.uint8), [0])


def test_channels_last_is_named():
    with pytest.raises(ShapeError, match=r"channels last; use images\.transpose\(0, 3, 1, 2\)"):
        ImageData.from_arrays(np.zeros((2, 8, 8, 3), np.uint8), [0, 1])


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_floats_outside_the_range_are_refused(value):
    with pytest.raises(DataError, match=r"images: expected floats in \[0, 1\], got values from"):
        ImageData.from_arrays(np.full((1, 2, 2), value), [0])


def test_wide_integers_are_refused():
    with pytest.raises(DataError, match=r"images: expected bytes, or floats in \[0, 1\], got int64"):
        ImageData.from_arrays(np.zeros((1, 2, 2), np.int64), [0])


@pytest.mark.parametrize("labels", [[0.5], [[0]], ["cat"]])
def test_labels_of_arrays_are_whole_numbers(labels):
    with pytest.raises(ShapeError, match=r"labels: expected whole numbers \[N\], got"):
        ImageData.from_arrays(np.zeros((1, 2, 2), np.uint8), labels)


def test_arrays_of_different_length():
    with pytest.raises(DataError, match="labels: expected one for each of 2 images, got 1"):
        ImageData.from_arrays(np.zeros((2, 2, 2), np.uint8), [0])


def test_to_float_spans_zero_to_one_and_leaves_the_bytes():
    images = torch.arange(256).to(torch.uint8)
    floats = to_float(images)
    assert floats.dtype == torch.float32
    assert torch.equal(floats, torch.arange(256) / 255)
    assert images.tolist() == list(range(256))


def test_to_float_takes_bytes_only():
    with pytest.raises(ShapeError, match=r"images: expected bytes, got torch\.float32 \(floats already\?\)"):
        to_float(torch.rand(2))


def test_batches_hold_what_the_whole_does():
    data = ImageData.from_arrays(np.arange(160, dtype=np.uint8).reshape(10, 4, 4), [0, 1] * 5)
    assert data.num_labels == 1
    batches = list(data.batches(4))
    assert [len(batch.labels) for batch in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([batch.images for batch in batches]), data.images)
    some = data.batch(data.labels == 1)
    assert torch.equal(some.images, data.images[1::2])
    assert some.sources is None


def test_a_spread_goes_from_the_first_to_the_last():
    data = ImageData.from_arrays(np.zeros((100, 2, 2), np.uint8), np.arange(100))
    assert data.spread(4).labels.tolist() == [0, 25, 50, 75]
    assert data.spread(100) is data


def test_a_crop_is_the_middle():
    data = ImageData.from_arrays(np.arange(16, dtype=np.uint8).reshape(1, 4, 4), [0])
    assert data.cropped(2).images.flatten().tolist() == [5, 6, 9, 10]
    assert data.image_shape == (1, 4, 4)
