from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.viz import phases
from torchcaps.viz.phases import order_parameter


def test_image_and_panel_per_iteration() -> None:
    angles = torch.rand(3, 7, 6) * 2 * math.pi - math.pi
    figure = phases(torch.rand(1, 14, 12), angles)
    figure.canvas.draw()
    image, *panels, _ = figure.axes
    assert image.get_title(loc="left") == "image"
    assert [panel.get_title(loc="left") for panel in panels] == ["start", "iteration 1", "iteration 2"]
    np.testing.assert_allclose(np.asarray(panels[1].images[0].get_array()), angles[1].numpy())
    assert panels[2].get_xlabel() == f"order {float(order_parameter(angles[2])):.2f}"


def test_colour_map_is_cyclic() -> None:
    (start, *_, _) = phases(torch.rand(1, 4, 4), torch.tensor([[[-math.pi, math.pi]]])).axes[1:]
    colours = start.images[0].to_rgba(np.asarray(start.images[0].get_array()))
    np.testing.assert_allclose(colours[0, 0], colours[0, 1], atol=0.02)


def test_order_parameter_bounds() -> None:
    assert float(order_parameter(torch.full((5, 5), 2.0))) == pytest.approx(1)
    assert float(order_parameter(torch.arange(8) * math.pi / 4)) == pytest.approx(0, abs=1e-6)


def test_errors_name_the_argument() -> None:
    with raises_about(ShapeError, "image", "(4, 4)"):
        phases(torch.rand(4, 4), torch.zeros(1, 4, 4))
    for shape in ((4, 4), (0, 4, 4)):
        with raises_about(ShapeError, "phases"):
            phases(torch.rand(1, 4, 4), torch.zeros(shape))
