from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_array, to_rgb


def test_grey_is_repeated_over_channels() -> None:
    picture = to_rgb(torch.tensor([[[0.25, 2.0]]]))
    np.testing.assert_allclose(picture, [[[0.25] * 3, [1.0] * 3]])


def test_channels_last() -> None:
    image = torch.rand(3, 4, 5)
    np.testing.assert_allclose(to_rgb(image), image.permute(1, 2, 0).numpy())


def test_other_channels_stand_side_by_side() -> None:
    image = torch.rand(2, 4, 5)
    np.testing.assert_allclose(to_rgb(image)[..., 0], torch.cat([image[0], image[1]], dim=1).numpy())


def test_mosaic_has_white_gaps() -> None:
    black = np.zeros((2, 3, 3), np.float32)
    canvas = mosaic([[black, black], [black]], gap=1)
    assert canvas.shape == (5, 7, 3)
    assert canvas[..., 0].tolist() == [[0, 0, 0, 1, 0, 0, 0]] * 2 + [[1] * 7] + [[0, 0, 0, 1, 1, 1, 1]] * 2
    assert centres(2, 3, gap=1) == [1.0, 5.0]


def test_tensor_with_gradient_becomes_array() -> None:
    assert to_array(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


def test_wrong_axes_are_named() -> None:
    with raises_about(ShapeError, "images", "(2, 3) (2 axes)"):
        check_images("images", torch.zeros(2, 3))
