"""Phases of oscillators over an image at every iteration."""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import check_images, to_array, to_rgb
from torchcaps.viz._style import LABEL, MUTED, TITLE, hide_axes, new_figure

# A cyclic colour map of nearly constant lightness.
CIRCLE = "twilight_shifted"


def phases(image: Tensor, phases: Tensor) -> Figure:
    """Draw an image and the phases of one oscillator per position, one panel per iteration.

    The colour is the phase in [-pi, pi]. Below each panel is the order parameter |mean exp(i phase)|: 0 for uniformly
    distributed phases, 1 for equal ones.

    Args:
        image: Image in [0, 1].
        phases: Phases at the start and after each iteration.

    Shape:
        image: [C, H, W]; phases: [R, h, w].

    Returns:
        The figure.

    Raises:
        ShapeError: If shapes do not fit.

    Example:
        >>> len(phases(torch.rand(1, 28, 28), torch.zeros(4, 14, 14)).axes)
        6
    """
    check_images("image", image, "C, H, W")
    if phases.dim() != 3 or phases.shape[0] == 0:
        raise ShapeError(f"phases: expected [R, h, w] with R of at least 1, got {tuple(phases.shape)}")
    pixels = to_rgb(image)
    panels = len(phases) + 1
    figure = new_figure(0.9 + 1.55 * panels, 0.75 + 1.55 * pixels.shape[0] / pixels.shape[1])
    row = figure.subplots(1, panels)
    hide_axes(row[0]).imshow(pixels, interpolation="nearest")
    row[0].set_title("image", **TITLE)
    for number, (axes, angles) in enumerate(zip(row[1:], phases, strict=True)):
        hide_axes(axes).imshow(to_array(angles), cmap=CIRCLE, vmin=-math.pi, vmax=math.pi, interpolation="nearest")
        axes.set_title("start" if number == 0 else f"iteration {number}", **TITLE)
        axes.set_xlabel(f"order {float(order_parameter(angles)):.2f}", **LABEL)
    scale = ScalarMappable(Normalize(-math.pi, math.pi), colormaps[CIRCLE])
    bar = figure.colorbar(scale, ax=list(np.asarray(row)), fraction=0.02, pad=0.01, ticks=[-math.pi, 0, math.pi])
    bar.outline.set_visible(False)
    bar.ax.set_yticklabels(["-π", "0", "π"])
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)
    return figure


def order_parameter(phases: Tensor) -> Tensor:
    """Return the order parameter |mean exp(i phase)| of phases.

    >>> order_parameter(torch.tensor([0.0, math.pi])) < 1e-6
    tensor(True)
    """
    return torch.hypot(phases.cos().mean(), phases.sin().mean())
