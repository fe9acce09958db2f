from __future__ import annotations

import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz import errors


def test_each_image_has_prediction_and_label() -> None:
    figure = errors(torch.rand(7, 3, 6, 5), list("abcdefg"), [f"{name} 90%" for name in "bcdefga"])
    assert [axes.get_title() for axes in figure.axes] == [f"{name} 90%" for name in "bcdefga"]
    assert [axes.get_xlabel() for axes in figure.axes] == list("abcdefg")


def test_missing_labels_are_refused() -> None:
    with raises_about(ShapeError, "labels", "1 of 2"):
        errors(torch.rand(2, 1, 4, 4), ["a"], ["b"])
    with raises_about(ShapeError, "labels", "0 of 0"):
        errors(torch.rand(0, 1, 4, 4), [], [])
