"""Some images of each class, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import Pixels, centres, check_images, mosaic, to_picture
from torchcaps.viz._style import frameless, new_figure, shorten

GAP = 2
# More rows than this cannot be read any more; the first classes stand for the others.
MOST_ROWS = 50


def contact_sheet(images: Tensor, labels: Tensor, class_names: Sequence[str], columns: int = 12) -> Figure:
    """Draw the first images [N, C, H, W] of each class, one row per class; bytes, or floats in [0, 1].

    >>> import torch
    >>> sheet = contact_sheet(torch.rand(6, 1, 8, 8), torch.tensor([0, 1, 0, 1, 0, 0]), ["cat", "dog"])
    >>> [label.get_text() for label in sheet.axes[0].get_yticklabels()]
    ['cat', 'dog']
    """
    check_images("images", images)
    if labels.shape != images.shape[:1]:
        raise ShapeError(f"labels: expected ({len(images)},), one for each image, got {tuple(labels.shape)}")
    if not len(images):
        raise ShapeError("images: expected at least one, got none")
    names = list(class_names)[:MOST_ROWS]
    rows: list[list[Pixels]] = []
    for label in range(len(names)):
        chosen = images[(labels == label).nonzero().flatten()[:columns]]  # [n, C, H, W]
        # Bytes are brought to [0, 1] only here, a few images at a time.
        rows.append([to_picture(image if image.is_floating_point() else image / 255) for image in chosen])
    some = next(row[0] for row in rows if row) if any(rows) else to_picture(images[0] / 255)
    height, width, _ = some.shape
    # The first picture says how large all are, so that a class without images gets a white row.
    rows = [row or [some * 0 + 1] for row in rows]
    figure = new_figure(8, 0.3 + (8 - 1.2) * len(rows) * (height + GAP) / (columns * (width + GAP)))
    axes = frameless(figure.add_subplot())
    axes.imshow(mosaic(rows, GAP), interpolation="nearest")
    axes.set_yticks(centres(len(rows), height, GAP), [shorten(name) for name in names])
    if len(class_names) > len(names):
        axes.set_title(f"the first {len(names)} of {len(class_names)} classes", fontsize=9, loc="left")
    return figure
