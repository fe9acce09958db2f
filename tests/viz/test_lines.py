from __future__ import annotations

import numpy as np
import pytest
from matplotlib.lines import Line2D

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ConfigError


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def test_lines_have_values_and_one_label() -> None:
    one, three = ([1, 2, 3], [0.9, 0.5, 0.4]), ([1, 2, 3], [0.8, 0.4, 0.1])
    figure = viz.lines({"Loss": {"one": one, "three": three}}, x="epoch", y="loss")
    figure.canvas.draw()
    (axes,) = figure.axes
    assert [points(line) for line in axes.lines] == [
        [list(p) for p in zip(*each, strict=True)] for each in (one, three)
    ]
    assert (axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()) == ("Loss", "epoch", "loss")
    assert axes.get_ylim()[0] == 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "three"]


def test_style_per_name_is_constant() -> None:
    panels = {"a": {"x": ([0, 1], [1, 0]), "y": ([0, 1], [1, 1])}, "b": {"y": ([0, 1], [0, 0])}, "c": {}}
    figure = viz.lines(panels, x="size", scale="share")
    figure.canvas.draw()
    first, second, third, spare = figure.axes
    assert [line.get_color() for line in second.lines] == [first.lines[1].get_color()]
    assert first.lines[0].get_color() != first.lines[1].get_color()
    assert first.lines[0].get_marker() != first.lines[1].get_marker()
    assert second.get_ylim() == (0, 1.02)
    assert [axes.get_visible() for axes in (third, spare)] == [True, False]
    # The lowest panel of each column names the axis.
    assert [axes.get_xlabel() for axes in (first, second, third)] == ["", "size", "size"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]


def test_log_scale_has_plain_numbers() -> None:
    figure = viz.lines({"Change": {"x": ([2, 3], [0.1, 0.001])}}, x="iteration", scale="log")
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylim() == pytest.approx((0.001, 0.1))
    assert "0.01" in [label.get_text() for label in axes.get_yticklabels()]


def test_nearly_constant_line_looks_flat() -> None:
    (axes,) = viz.lines({"Change": {"x": ([2, 3, 4], [0.02, 0.03, 0.0])}}, x="iteration", scale="log").axes
    assert axes.get_ylim() == pytest.approx((0.01, 0.1))


def test_many_points_have_few_markers() -> None:
    (axes,) = viz.lines({"Loss": {"x": (range(400), [1.0] * 400), "y": ([1], [1.0])}}, x="step").axes
    assert [line.get_markevery() for line in axes.lines] == [20, 1]


def test_nothing_to_draw() -> None:
    with raises_about(ConfigError, "panels", "got 0 in 1 panels"):
        viz.lines({"Loss": {}}, x="epoch")
