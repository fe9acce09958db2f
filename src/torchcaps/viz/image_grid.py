"""Images of each class in a grid."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import Pixels, centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import hide_axes, new_figure, shorten

GAP = 2
# More rows are not readable; the first classes are drawn.
MOST_ROWS = 50


def image_grid(images: Tensor, labels: Tensor, class_names: Sequence[str], columns: int = 12) -> Figure:
    """Draw the first images of each class, one row per class.

    Args:
        images: Bytes, or floats in [0, 1].
        labels: Classes of the images.
        class_names: Names of the classes; at most 50 rows are drawn.
        columns: Number of images per class.

    Shape:
        images: [N, C, H, W]; labels: [N].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
        >>> import torch
        >>> figure = image_grid(torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 0, 1, 0, 0]), ["cat", "dog"])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['cat', 'dog']
    """
    check_images("images", images)
    if labels.shape != images.shape[:1]:
        raise ShapeError(f"labels: expected ({len(images)},), got {tuple(labels.shape)}")
    if not len(images):
        raise ShapeError("images: expected at least one image, got 0")
    names = list(class_names)[:MOST_ROWS]
    rows: list[list[Pixels]] = []
    for label in range(len(names)):
        chosen = images[(labels == label).nonzero().flatten()[:columns]]  # [n, C, H, W]
        # Only the drawn images are converted to floats.
        rows.append([to_rgb(image if image.is_floating_point() else image / 255) for image in chosen])
    some = next(row[0] for row in rows if row) if any(rows) else to_rgb(images[0] / 255)
    height, width, _ = some.shape
    # A class without images gets a white row.
    rows = [row or [some * 0 + 1] for row in rows]
    figure = new_figure(8, 0.3 + (8 - 1.2) * len(rows) * (height + GAP) / (columns * (width + GAP)))
    axes = hide_axes(figure.add_subplot())
    axes.imshow(mosaic(rows, GAP), interpolation="nearest")
    axes.set_yticks(centres(len(rows), height, GAP), [shorten(name) for name in names])
    if len(class_names) > len(names):
        axes.set_title(f"the first {len(names)} of {len(class_names)} classes", fontsize=9, loc="left")
    return figure
