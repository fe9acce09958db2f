from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError
from torchcaps.viz._style import INK, WARM
from torchcaps.viz.overlays import FAINT, blend

PAIRS = torch.tensor([[1, 2]])


def test_overlay_colours():
    image = torch.tensor([1.0, 1.0, 1.0, 1.0]).view(1, 1, 4)
    pair = torch.tensor([[1.0, 0, 1, 0], [0, 1.0, 1, 0]]).view(2, 1, 1, 4)
    expected = [[1, 0, 0], [0, 1, 0], [1, 1, 0], [FAINT, FAINT, FAINT]]
    np.testing.assert_allclose(blend(image, pair)[0], expected, atol=1e-6)


def test_images_stand_over_their_overlays():
    image, pair = torch.rand(1, 1, 4, 4), torch.rand(1, 2, 1, 4, 4)
    (axes,) = viz.overlays(image, pair, PAIRS, PAIRS).axes
    pixels = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(pixels[:4, :, 0], image[0, 0])
    np.testing.assert_allclose(pixels[6:], blend(image[0], pair[0]))


def test_overlay_colours_of_wrong_classes():
    images, pair = torch.rand(2, 1, 4, 4), torch.rand(2, 2, 1, 4, 4)
    labels, predicted = torch.tensor([[2, 1], [0, 3]]), torch.tensor([[1, 2], [3, 4]])
    targets = torch.tensor([[2, 5], [3, 4]])
    (axes,) = viz.overlays(images, pair, labels, predicted, targets).axes
    words = [(text.get_text(), text.get_color()) for text in axes.texts[:2]]
    assert words == [("1, 2\n1, 2\n2, 5*", INK), ("0, 3\n3, 4\n3, 4", WARM)]


def test_more_than_eight_columns_add_a_band():
    pairs = PAIRS.repeat(9, 1)
    assert len(viz.overlays(torch.rand(9, 1, 4, 4), torch.rand(9, 2, 1, 4, 4), pairs, pairs).axes) == 2


def test_wrong_shapes_are_named():
    images, pair = torch.rand(1, 1, 4, 4), torch.rand(1, 2, 1, 4, 4)
    with raises_about(ShapeError, "images", "(0, 1, 4, 4)"):
        viz.overlays(images[:0], pair[:0], PAIRS[:0], PAIRS[:0])
    with raises_about(ShapeError, "reconstructions", "(1, 1, 4, 4)"):
        viz.overlays(images, images, PAIRS, PAIRS)
    with raises_about(ShapeError, "predictions", "(1,)"):
        viz.overlays(images, pair, PAIRS, PAIRS[0, :1])
