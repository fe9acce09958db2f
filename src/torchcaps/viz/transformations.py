"""Images, shifted targets and outputs of a transforming auto-encoder."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import NOTE, hide_axes, new_figure

GAP = 2
ROWS = ("image", "target", "output", "difference")


def transformations(images: Tensor, targets: Tensor, outputs: Tensor, shifts: Tensor) -> Figure:
    """Draw images above the targets of a shift, the outputs, and their differences.

    Above each column is its shift in pixels, down and right. Differences are grey at zero, lighter where the output is
    too bright and darker where it is too dark.

    Args:
        images: Images in [0, 1].
        targets: Shifted images.
        outputs: Outputs of the auto-encoder.
        shifts: Shifts in pixels.

    Shape:
        images, targets, outputs: [N, C, H, W]; shifts: [N, 2].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
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
    cells = [[to_rgb(image) for image in row] for row in (images, targets, outputs, difference)]
    height, width, _ = cells[0][0].shape
    figure = new_figure(0.9 + 0.9 * len(images), 0.5 + 0.9 * len(ROWS) * height / width)
    axes = hide_axes(figure.add_subplot())
    axes.imshow(mosaic(cells, GAP), interpolation="nearest")
    axes.set_yticks(centres(len(ROWS), height, GAP), ROWS)
    for (down, right), x in zip(shifts.tolist(), centres(len(images), width, GAP), strict=True):
        axes.text(x, -2.5, f"{down:+.3g}, {right:+.3g}", ha="center", va="bottom", **NOTE)
    return figure
