from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError


def test_one_row_per_dimension_and_one_column_per_offset() -> None:
    images = torch.rand(5, 3, 1, 4, 6)
    (axes,) = viz.perturbations(images, [-0.1, 0.0, 0.1], "A seven").axes
    pixels = np.asarray(axes.images[0].get_array())
    assert pixels.shape == (5 * 6 - 2, 3 * 8 - 2, 3)
    np.testing.assert_allclose(pixels[12:16, 8:14, 0], images[2, 1, 0].numpy())
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["-0.10", "0", "+0.10"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2", "3", "4", "5"]
    assert axes.get_title(loc="left") == "A seven"


def test_unchanged_column_is_framed() -> None:
    (axes,) = viz.perturbations(torch.rand(2, 3, 1, 4, 4), [-0.1, 0.0, 0.1]).axes
    (frame,) = axes.patches
    assert frame.get_extents().width > 0
    assert not viz.perturbations(torch.rand(2, 1, 1, 4, 4), [0.1]).axes[0].patches


def test_wrong_shapes_are_named() -> None:
    with raises_about(ShapeError, "images", "(3, 1, 4, 4) (4 axes)"):
        viz.perturbations(torch.rand(3, 1, 4, 4), [0.0])
    with raises_about(ShapeError, "offsets", "1"):
        viz.perturbations(torch.rand(2, 3, 1, 4, 4), [0.0])
