"""Phases of oscillators over an image, iteration by iteration."""

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
from torchcaps.viz._images import check_images, to_array, to_picture
from torchcaps.viz._style import LABEL, MUTED, TITLE, frameless, new_figure

# Its two ends have the same colour, as a phase's do, and all its colours are about as light.
CIRCLE = "twilight_shifted"


def phases(image: Tensor, phases: Tensor) -> Figure:
    """Draw an image [C, H, W] and beside it the phases [R, h, w] of one oscillator per position, a panel per iteration.

    Colour is the phase, from -pi to pi. Under each panel stands the order parameter |mean exp(i phase)|: 0 where the
    phases are spread over the circle, 1 where all are the same.

    >>> len(phases(torch.rand(1, 28, 28), torch.zeros(4, 14, 14)).axes)
    6
    """
    check_images("image", image, "C, H, W")
    if phases.dim() != 3 or phases.shape[0] == 0:
        raise ShapeError(f"phases: expected [R, h, w] of at least one iteration, got {tuple(phases.shape)}")
    picture = to_picture(image)
    panels = len(phases) + 1
    figure = new_figure(0.9 + 1.55 * panels, 0.75 + 1.55 * picture.shape[0] / picture.shape[1])
    row = figure.subplots(1, panels)
    frameless(row[0]).imshow(picture, interpolation="nearest")
    row[0].set_title("image", **TITLE)
    for number, (axes, angles) in enumerate(zip(row[1:], phases, strict=True)):
        frameless(axes).imshow(to_array(angles), cmap=CIRCLE, vmin=-math.pi, vmax=math.pi, interpolation="nearest")
        axes.set_title("start" if number == 0 else f"iteration {number}", **TITLE)
        axes.set_xlabel(f"order {float(order_parameter(angles)):.2f}", **LABEL)
    scale = ScalarMappable(Normalize(-math.pi, math.pi), colormaps[CIRCLE])
    bar = figure.colorbar(scale, ax=list(np.asarray(row)), fraction=0.02, pad=0.01, ticks=[-math.pi, 0, math.pi])
    bar.outline.set_visible(False)
    bar.ax.set_yticklabels(["-π", "0", "π"])
    bar.ax.tick_params(colors=MUTED, labelsize=8, length=0)
    return figure


def order_parameter(phases: Tensor) -> Tensor:
    """How far phases agree: |mean exp(i phase)| over all of them.

    >>> order_parameter(torch.tensor([0.0, math.pi])) < 1e-6
    tensor(True)
    """
    return torch.hypot(phases.cos().mean(), phases.sin().mean())
