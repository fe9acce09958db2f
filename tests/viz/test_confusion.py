from __future__ import annotations

import numpy as np
import torch

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError

MATRIX = torch.tensor([[8, 2, 0], [0, 5, 0], [1, 0, 0]])


def test_shade_is_root_of_row_share() -> None:
    (axes,) = viz.confusion(MATRIX, ["cat", "dog", "eel"]).axes
    shares = np.array([[0.8, 0.2, 0], [0, 1, 0], [1, 0, 0]])
    shown = np.ma.asanyarray(axes.images[0].get_array())
    np.testing.assert_allclose(np.asarray(shown), np.sqrt(shares))
    # Empty cells are not painted.
    assert np.ma.getmaskarray(shown).tolist() == (shares == 0).tolist()


def test_counts_are_annotated() -> None:
    (axes,) = viz.confusion(MATRIX, ["cat", "dog", "eel"]).axes
    assert {(text.get_position(), text.get_text()) for text in axes.texts} == {
        ((0, 0), "8"),
        ((1, 0), "2"),
        ((1, 1), "5"),
        ((0, 2), "1"),
    }
    assert axes.get_xlabel() == "13 of 16 correct"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["cat", "dog", "eel"]


def test_empty_class() -> None:
    (axes,) = viz.confusion(torch.tensor([[1, 0], [0, 0]])).axes
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), [[1, 0], [0, 0]])


def test_many_classes_get_no_numbers_and_fewer_ticks() -> None:
    (axes,) = viz.confusion(torch.eye(100, dtype=torch.int64)).axes
    assert not axes.texts
    assert len(axes.get_xticks()) == 50


def test_class_name_is_not_parsed_as_math() -> None:
    figure = viz.confusion(torch.eye(2, dtype=torch.int64), [r"$\frac", "a$b$c"])
    figure.canvas.draw()
    assert figure.axes[0].get_yticklabels()[0].get_text() == r"\$\frac"


def test_wrong_shapes_are_named() -> None:
    with raises_about(ShapeError, "matrix", "(2, 3)"):
        viz.confusion(torch.zeros(2, 3))
    with raises_about(ShapeError, "class_names", "1"):
        viz.confusion(MATRIX, ["cat"])
