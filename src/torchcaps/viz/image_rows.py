"""Rows of images with a name each."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import hide_axes, new_figure, shorten

GAP = 2


def image_rows(rows: Mapping[str, Tensor]) -> Figure:
    """Draw one row of images per name.

    Args:
        rows: Images in [0, 1] by name, with equal height and width.

    Shape:
        rows: each [N, C, H, W].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or their sizes differ.

    Example:
        >>> import torch
        >>> figure = image_rows({"image": torch.rand(4, 1, 8, 8), "decoded": torch.rand(4, 3, 8, 8)})
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['image', 'decoded']
    """
    if not rows:
        raise ShapeError("rows: expected at least one row, got 0")
    sizes = {images.shape[-2:] for images in rows.values()}
    for name, images in rows.items():
        check_images(name, images)
        if not len(images) or len(sizes) != 1:
            raise ShapeError(f"{name}: expected images of one size, got {tuple(images.shape)}")
    cells = [[to_rgb(image) for image in images] for images in rows.values()]
    height, width, _ = cells[0][0].shape
    columns = max(map(len, cells))
    figure = new_figure(2.6 + 0.8 * columns, 0.3 + 0.8 * len(cells) * (height + GAP) / (width + GAP))
    axes = hide_axes(figure.add_subplot())
    axes.imshow(mosaic(cells, GAP), interpolation="nearest")
    axes.set_yticks(centres(len(cells), height, GAP), [shorten(name, 40) for name in rows])
    return figure
