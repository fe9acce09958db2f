from __future__ import annotations

import base64
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from torchcaps.playground.images import MAX_SIDE, Bitmap, ImageSource, encode_images, fit_drawing, tile_images

DOT = {"width": 1, "height": 1, "pixels": "AA=="}


def bitmap(pixels: bytes, width: int, height: int) -> Bitmap:
    return Bitmap(width=width, height=height, pixels=base64.b64encode(pixels).decode())


def test_bitmap_rows() -> None:
    grey = bitmap(bytes([0, 255, 51, 102, 153, 204]), 3, 2).tensor()
    assert torch.allclose(grey, torch.tensor([[0, 1, 0.2], [0.4, 0.6, 0.8]]))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 2, "height": 2, "pixels": "AAA="}, "pixels: expected 4 bytes, got 2"),
        ({"width": 1, "height": 1, "pixels": "%%%%"}, "pixels: expected base64"),
        ({"width": 1, "height": 1, "pixels": "AAA"}, "pixels: expected base64"),
        ({"width": MAX_SIDE + 1, "height": 1, "pixels": "AA=="}, "less than or equal to 256"),
        ({"width": 0, "height": 1, "pixels": ""}, "greater than or equal to 1"),
        ({"width": 1, "height": 1, "pixels": "A" * 100_000}, "at most 87384 characters"),
        ({"width": 1, "height": 1, "pixels": "AA==", "depth": 3}, "Extra inputs are not permitted"),
    ],
)
def test_invalid_bitmaps(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        Bitmap.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "sample.sample\n  Field required"),
        ({"sample": 1, "drawing": DOT}, "drawing.sample\n  Extra inputs are not permitted"),
        ({"second": 1, "drawing": DOT}, "drawing.second\n  Extra inputs are not permitted"),
        ({"second": 1}, "sample.sample\n  Field required"),
        ({"sample": -1}, "greater than or equal to 0"),
        ({"sample": True}, "sample.sample\n  Input should be a valid integer"),
        ({"sample": 1, "second": False}, "sample.second\n  Input should be a valid integer"),
        (7, "valid dictionary"),
    ],
)
def test_source_is_a_sample_or_a_drawing(fields: object, words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        TypeAdapter(ImageSource).validate_python(fields)


def test_encode_images() -> None:
    sent = encode_images(torch.tensor([0.0, 0.5, 1.0, 2.0]).view(1, 1, 2, 2))
    assert (sent.count, sent.width, sent.height, sent.channels) == (1, 2, 2, 1)
    assert list(base64.b64decode(sent.data)) == [0, 128, 255, 255]


def test_encode_channels() -> None:
    colours = torch.tensor([1.0, 0.0, 0.2]).view(1, 3, 1, 1).expand(1, 3, 2, 1)
    assert list(base64.b64decode(encode_images(colours).data)) == [255, 0, 51] * 2
    assert encode_images(torch.rand(4, 2, 3, 5)).channels == 1


def test_tile_images() -> None:
    images = torch.arange(6.0).view(2, 3, 1, 1, 1).expand(2, 3, 1, 2, 2)
    assert tile_images(images)[0, 0, ::2, ::2].tolist() == [[0, 1, 2], [3, 4, 5]]


def centre_of_mass(image: torch.Tensor) -> tuple[float, float]:
    rows, columns = torch.meshgrid(*(torch.arange(side) + 0.5 for side in image.shape), indexing="ij")
    return float((image * rows).sum() / image.sum()), float((image * columns).sum() / image.sum())


def test_drawing_is_scaled_and_centred() -> None:
    drawing = torch.zeros(100, 100)
    drawing[10:50, 70:80] = 0.6
    drawing[40:50, 60:80] = 0.6
    image = fit_drawing(drawing, (1, 28, 28))
    assert image.shape == (1, 1, 28, 28)
    grey = image[0, 0]
    inked = (grey > 0.1).nonzero()
    high, wide = (inked.amax(0) - inked.amin(0) + 1).tolist()
    assert (high, wide) == (20, 10)
    assert all(abs(place - 14) <= 0.5 for place in centre_of_mass(grey))
    assert float(grey.max()) == 1


def test_empty_drawing() -> None:
    assert fit_drawing(torch.full((9, 9), 0.04), (1, 28, 28)).abs().sum() == 0


def test_drawing_for_other_shapes() -> None:
    image = fit_drawing(torch.eye(50), (3, 32, 48))
    assert image.shape == (1, 3, 32, 48)
    assert torch.equal(image[0, 0], image[0, 2])


@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 10_000),
    st.sampled_from([(1, 28, 28), (3, 32, 32), (1, 5, 9)]),
)
def test_any_drawing_fits(height: int, width: int, seed: int, shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawing = torch.rand(height, width, generator=generator)
    image = fit_drawing(torch.where(torch.rand(height, width, generator=generator) < 0.3, drawing, 0.0), shape)
    assert image.shape == (1, *shape)
    assert bool(((image >= 0) & (image <= 1)).all())
