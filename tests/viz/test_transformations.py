from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz import transformations

IMAGES = torch.rand(4, 1, 6, 5)
SHIFTS = torch.tensor([[0, 0], [1, -2], [2, 0], [-1, 1]])


def test_four_rows_and_shift_titles() -> None:
    (axes,) = transformations(IMAGES, IMAGES, IMAGES, SHIFTS).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["image", "target", "output", "difference"]
    assert [text.get_text() for text in axes.texts] == ["+0, +0", "+1, -2", "+2, +0", "-1, +1"]
    assert np.asarray(axes.images[0].get_array()).shape == (4 * 6 + 3 * 2, 4 * 5 + 3 * 2, 3)


def test_difference_is_centred_on_grey() -> None:
    outputs = IMAGES.clone()
    outputs[1] = IMAGES[1] * 0
    outputs[2] = 1 + 0 * IMAGES[2]
    pixels = np.asarray(transformations(IMAGES, IMAGES, outputs, SHIFTS).axes[0].images[0].get_array())[-6:]
    np.testing.assert_allclose(pixels[:, :5], 0.5)
    assert (pixels[:, 7:12] <= 0.5).all()
    assert (pixels[:, 14:19] >= 0.5).all()


def test_errors_name_the_argument() -> None:
    with raises_about(ShapeError, "images", "(0, 1, 6, 5)"):
        transformations(IMAGES[:0], IMAGES[:0], IMAGES[:0], SHIFTS[:0])
    with raises_about(ShapeError, "targets", "(3, 1, 6, 5)"):
        transformations(IMAGES, IMAGES[:3], IMAGES, SHIFTS)
    with raises_about(ShapeError, "outputs", "(3, 1, 6, 5)"):
        transformations(IMAGES, IMAGES, IMAGES[:3], SHIFTS)
    with raises_about(ShapeError, "shifts", "(4,)"):
        transformations(IMAGES, IMAGES, IMAGES, SHIFTS[:, 0])
