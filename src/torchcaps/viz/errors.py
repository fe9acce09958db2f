"""Images that are classified wrongly, with label and prediction."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import check_images, to_rgb
from torchcaps.viz._style import INK, WARM, hide_axes, new_figure, shorten

COLUMNS = 6


def errors(images: Tensor, labels: Sequence[str], predictions: Sequence[str]) -> Figure:
    """Draw images, each with its label below and the wrong prediction above.

    Args:
        images: Floats in [0, 1].
        labels: What the images show.
        predictions: What was predicted, such as "cat 98%".

    Shape:
        images: [N, C, H, W].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or not one label and prediction for each.

    Example:
        >>> import torch
        >>> len(errors(torch.rand(2, 1, 8, 8), ["cat", "dog"], ["dog 90%", "cat 80%"]).axes)
        2
    """
    check_images("images", images)
    if not len(images) or not len(images) == len(labels) == len(predictions):
        raise ShapeError(f"labels: expected one for each of at least one image, got {len(labels)} of {len(images)}")
    columns = min(COLUMNS, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure(1.35 * columns, 1.75 * rows)
    for place, (image, label, prediction) in enumerate(zip(images, labels, predictions, strict=True)):
        axes = hide_axes(figure.add_subplot(rows, columns, place + 1))
        axes.imshow(to_rgb(image), interpolation="nearest")
        axes.set_title(shorten(prediction, 18), fontsize=8, color=WARM, pad=3)
        axes.set_xlabel(shorten(label, 18), fontsize=8, color=INK, labelpad=2)
    return figure
