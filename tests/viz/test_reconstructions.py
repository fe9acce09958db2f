from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError
from torchcaps.viz._style import INK, MUTED, WARM

CLASSES = torch.arange(10) % 3


def test_bands_of_eight_with_images_above() -> None:
    images, decoded = torch.rand(10, 1, 4, 4), torch.rand(10, 1, 4, 4)
    first, second = viz.reconstructions(images, decoded, CLASSES, CLASSES).axes
    pixels = np.asarray(first.images[0].get_array())
    assert pixels.shape == (4 + 2 + 4, 8 * 6 - 2, 3)
    np.testing.assert_allclose(pixels[:4, 6:10, 0], images[1, 0].numpy())
    np.testing.assert_allclose(pixels[6:, 6:10, 0], decoded[1, 0].numpy())
    # The last band is not full, but as wide as the others.
    pixels = np.asarray(second.images[0].get_array())
    assert pixels.shape == (10, 46, 3)
    np.testing.assert_allclose(pixels[:4, :4, 0], images[8, 0].numpy())
    assert (pixels[:, 12:] == 1).all()


def test_label_prediction_and_target_are_written() -> None:
    images = torch.rand(2, 3, 4, 4)
    labels, predictions, targets = torch.tensor([1, 2]), torch.tensor([1, 0]), torch.tensor([1, 2])
    (axes,) = viz.reconstructions(images, images, labels, predictions, targets).axes
    assert [(text.get_text(), text.get_color()) for text in axes.texts] == [
        ("1\n1\n1", INK),
        ("2\n0\n2", WARM),
        ("label\nprediction\ndecoded class", MUTED),
    ]


def test_predictions_without_targets() -> None:
    images = torch.rand(1, 1, 4, 4)
    names = ["cat", "dog"]
    (axes,) = viz.reconstructions(images, images, torch.tensor([0]), torch.tensor([1]), class_names=names).axes
    assert axes.texts[0].get_text().split() == ["cat", "dog", "dog"]
    assert axes.texts[1].get_text().split() == ["label", "prediction", "decoded", "class"]


def test_wrong_shapes_are_named() -> None:
    images = torch.rand(2, 1, 4, 4)
    two, three = torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    with raises_about(ShapeError, "images", "(4, 4) (2 axes)"):
        viz.reconstructions(images[0, 0], images, two, two)
    with raises_about(ShapeError, "images", "(0, 1, 4, 4)"):
        viz.reconstructions(images[:0], images[:0], two[:0], two[:0])
    with raises_about(ShapeError, "reconstructions", "(2, 1, 4, 3)"):
        viz.reconstructions(images, images[..., :3], two, two)
    with raises_about(ShapeError, "labels", "(3,)"):
        viz.reconstructions(images, images, three, two)
