"""One image beside its reconstruction."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_picture
from torchcaps.viz._style import frameless, new_figure
from torchcaps.viz.overlays import blend

GAP = 1


def pair(image: Tensor, reconstruction: Tensor) -> Figure:
    """Draw an image [C, H, W] as the network saw it, and beside it what was decoded from its class capsule.

    Where two things are in it there are two reconstructions, [2, C, H, W]: the first is red, the second green.

    >>> import torch
    >>> pair(torch.rand(1, 28, 28), torch.rand(1, 28, 28)).axes[0].get_xticklabels()[1].get_text()
    'decoded'
    """
    check_images("image", image, "C, H, W")
    two = reconstruction.dim() == 4
    wanted = (2, *image.shape) if two else tuple(image.shape)
    if reconstruction.shape != wanted:
        raise ShapeError(f"reconstruction: expected {wanted}, got {tuple(reconstruction.shape)}")
    pictures = [to_picture(image), blend(image, reconstruction) if two else to_picture(reconstruction)]
    height, width, _ = pictures[0].shape
    figure = new_figure(4.4, 0.35 + 2.1 * height / width)
    axes = frameless(figure.add_subplot())
    axes.imshow(mosaic([pictures], GAP), interpolation="nearest")
    axes.set_xticks(centres(2, width, GAP), ["image", "decoded"])
    return figure
