"""One image beside its reconstruction."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import hide_axes, new_figure
from torchcaps.viz.overlays import blend

GAP = 1


def reconstruction_pair(image: Tensor, reconstruction: Tensor) -> Figure:
    """Draw an image beside the decoding of its class capsule.

    Args:
        image: Image in [0, 1].
        reconstruction: One decoding, or two for images with two labels: the first is red, the second green.

    Shape:
        image: [C, H, W]; reconstruction: [C, H, W] or [2, C, H, W].

    Returns:
        The figure.

    Raises:
        ShapeError: If shapes do not fit.

    Example:
        >>> import torch
        >>> figure = reconstruction_pair(torch.rand(1, 28, 28), torch.rand(1, 28, 28))
        >>> figure.axes[0].get_xticklabels()[1].get_text()
        'decoded'
    """
    check_images("image", image, "C, H, W")
    two = reconstruction.dim() == 4
    wanted = (2, *image.shape) if two else tuple(image.shape)
    if reconstruction.shape != wanted:
        raise ShapeError(f"reconstruction: expected {wanted}, got {tuple(reconstruction.shape)}")
    cells = [to_rgb(image), blend(image, reconstruction) if two else to_rgb(reconstruction)]
    height, width, _ = cells[0].shape
    figure = new_figure(4.4, 0.35 + 2.1 * height / width)
    axes = hide_axes(figure.add_subplot())
    axes.imshow(mosaic([cells], GAP), interpolation="nearest")
    axes.set_xticks(centres(2, width, GAP), ["image", "decoded"])
    return figure
