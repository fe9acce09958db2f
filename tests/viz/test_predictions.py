from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError
from torchcaps.viz._style import WARM

NAMES = ["nought", "one", "two"]
IMAGES = torch.linspace(0, 1, 12).view(12, 1, 1, 1).expand(12, 1, 4, 4)
LABELS = torch.arange(12) % 3


def draw(**predicted: torch.Tensor) -> Figure:
    figure = viz.predictions(IMAGES, LABELS, predicted, {"Right": [3, 0], "Others": list(range(2, 12))}, NAMES)
    figure.canvas.draw()
    return figure


def test_wrong_predictions_have_a_cross_and_a_colour() -> None:
    figure = draw(capsules=LABELS, cnn=torch.zeros(12, dtype=torch.int64))
    texts = [(text.get_text(), text.get_color() == WARM) for text in figure.axes[1].texts]
    # Two, then nought: label, capsules, cnn.
    assert texts[:6] == [("two", False), ("two", False), ("nought ✗", True)] + [("nought", False)] * 3
    assert [text for text, _ in texts[-3:]] == ["label", "capsules", "cnn"]
    assert all(("✗" in text) == warm for text, warm in texts)


def test_lines_of_text_do_not_overlap() -> None:
    figure = draw(capsules=LABELS, cnn=LABELS)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts[:3]]
    label, first, second = ((box.y0, box.y1) for box in boxes)
    assert second[1] <= first[0] + 1 < first[1] < label[0]


def test_groups_have_headings_and_bands_of_equal_width() -> None:
    figure = draw(capsules=LABELS)
    assert [axes.get_title("left") for axes in figure.axes] == ["Right", "Others", ""]
    assert len({axes.images[0].get_array().shape for axes in figure.axes}) == 1  # pyright: ignore
    shown = np.asarray(figure.axes[0].images[0].get_array())[..., 0]
    assert shown[0, [0, 6, 12]] == pytest.approx([float(IMAGES[3].mean()), 0.0, 1.0])


def test_shapes_are_checked() -> None:
    with raises_about(ShapeError, "cnn", "(3,)"):
        draw(cnn=torch.zeros(3))
    with raises_about(ShapeError, "groups", "got 0"):
        viz.predictions(IMAGES, LABELS, {}, {"Right": []}, NAMES)
