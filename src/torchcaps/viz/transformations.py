"""What a transforming auto-encoder makes of an image and a shift."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_picture
from torchcaps.viz._style import NOTE, frameless, new_figure

GAP = 2
ROWS = ("image", "target", "output", "difference")


def transformations(images: Tensor, targets: Tensor, outputs: Tensor, shifts: Tensor) -> Figure:
    """Draw images [N, C, H, W] over what they should become, what came out, and how far the two are apart.

    Above each column stands its shift, [N, 2], in pixels down and right. The difference is grey where there is none,
    lighter where the output is too light and darker where it is too dark.

    >>> import torch
    >>> digits = torch.rand(3, 1, 28, 28)
    >>> transformations(digits, digits, digits, torch.zeros(3, 2)).axes[0].get_yticklabels()[3].get_text()
    'difference'
    """
    check_images("images", images)
    if images.shape[0] == 0:
        raise ShapeError(f"images: expected at least one image, got {tuple(images.shape)}")
    for name, other in (("targets", targets), ("outputs", outputs)):
        if other.shape != images.shape:
            raise ShapeError(f"{name}: expected {tuple(images.shape)}, got {tuple(other.shape)}")
    if shifts.shape != (len(images), 2):
        raise ShapeError(f"shifts: expected {(len(images), 2)}, got {tuple(shifts.shape)}")
    difference = 0.5 + (outputs.clamp(0, 1) - targets) / 2
    pictures = [[to_picture(image) for image in row] for row in (images, targets, outputs, difference)]
    height, width, _ = pictures[0][0].shape
    figure = new_figure(0.9 + 0.9 * len(images), 0.5 + 0.9 * len(ROWS) * height / width)
    axes = frameless(figure.add_subplot())
    axes.imshow(mosaic(pictures, GAP), interpolation="nearest")
    axes.set_yticks(centres(len(ROWS), height, GAP), ROWS)
    for (down, right), x in zip(shifts.tolist(), centres(len(images), width, GAP), strict=True):
        axes.text(x, -2.5, f"{down:+.3g}, {right:+.3g}", ha="center", va="bottom", **NOTE)
    return figure
