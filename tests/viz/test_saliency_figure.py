from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz import explanation


def test_signal_is_lines_over_shades() -> None:
    figure = explanation(torch.rand(2, 3, 20), torch.rand(2, 20), ["walking", "running"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["walking", "running"]
    assert all(len(axes.lines) == 3 and len(axes.images) == 1 for axes in figure.axes)


def test_most_relevant_slice_of_a_volume_is_drawn() -> None:
    volumes, maps = torch.rand(1, 1, 5, 6, 7), torch.zeros(1, 5, 6, 7)
    maps[0, 3, 2, 2] = 1
    figure = explanation(volumes, maps, ["cell"])
    above, below = figure.axes
    assert above.get_title(loc="left") == "cell, slice 3"
    shown = torch.as_tensor(above.images[0].get_array())
    torch.testing.assert_close(shown[..., 0], volumes[0, 0, 3], check_dtype=False)
    assert len(below.images) == 2


def test_one_bar_for_each_word() -> None:
    maps = torch.tensor([[[0.5, 0.3, 0.2]], [[1.0, 0.0, 0.0]]])
    figure = explanation(torch.rand(2, 4, 1, 3), maps, ["one", "two"], [["how", "far", "?"], ["what"]])
    assert [len(axes.patches) for axes in figure.axes] == [3, 1]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["how", "far", "?"]
    heights = [bar.get_window_extent().height for bar in figure.axes[0].patches]
    assert [height / sum(heights) for height in heights] == pytest.approx([0.5, 0.3, 0.2])


def test_channels_side_by_side_have_the_same_heat() -> None:
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 2] = 1
    heat = torch.as_tensor(explanation(torch.rand(1, 2, 4, 4), maps, ["toy"]).axes[1].images[1].get_array())
    assert heat.nonzero().tolist() == [[1, 2], [1, 6]]


def test_mistakes() -> None:
    images, maps = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
    with raises_about(ShapeError, "images", (2, 4)):
        explanation(torch.rand(2, 4), maps, ["a", "b"])
    with raises_about(ShapeError, "maps", (2, 4)):
        explanation(images, torch.rand(2, 4), ["a", "b"])
    with raises_about(ShapeError, "titles", 1):
        explanation(images, maps, ["a"])
    with raises_about(ShapeError, "words", 1):
        explanation(images, maps, ["a", "b"], [["word"]])
