from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError


def test_image_and_reconstruction_stand_side_by_side() -> None:
    image, reconstruction = torch.rand(1, 4, 5), torch.rand(1, 4, 5)
    (axes,) = viz.reconstruction_pair(image, reconstruction).axes
    pixels = np.asarray(axes.images[0].get_array())
    assert pixels.shape == (4, 11, 3)
    np.testing.assert_allclose(pixels[:, :5, 0], image[0].numpy())
    np.testing.assert_allclose(pixels[:, 6:, 0], reconstruction[0].numpy())


def test_two_reconstructions_are_red_and_green() -> None:
    image, both = torch.zeros(1, 4, 5), torch.zeros(2, 1, 4, 5)
    both[0, 0, 1, 1] = both[1, 0, 2, 2] = 1
    (axes,) = viz.reconstruction_pair(image, both).axes
    pixels = np.asarray(axes.images[0].get_array())[:, 6:]
    assert (pixels[1, 1].tolist(), pixels[2, 2].tolist()) == ([1, 0, 0], [0, 1, 0])


def test_wrong_shapes_are_named() -> None:
    with raises_about(ShapeError, "image", "(4, 5) (2 axes)"):
        viz.reconstruction_pair(torch.rand(4, 5), torch.rand(4, 5))
    with raises_about(ShapeError, "reconstruction", "(1, 4, 4)"):
        viz.reconstruction_pair(torch.rand(1, 4, 5), torch.rand(1, 4, 4))
    with raises_about(ShapeError, "reconstruction", "(3, 1, 4, 5)"):
        viz.reconstruction_pair(torch.rand(1, 4, 5), torch.rand(3, 1, 4, 5))
