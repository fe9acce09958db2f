"""Decodings of a perturbed class capsule, as in figure 4 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import ACCENT, LABEL, TITLE, hide_axes, new_figure

GAP = 2


def perturbations(images: Tensor, offsets: Sequence[float], title: str = "") -> Figure:
    """Draw decodings of a class capsule, one row per changed dimension and one column per offset.

    The column with offset 0 is framed. `torchcaps.evaluation.perturb` computes the images.

    Args:
        images: Decoded images in [0, 1].
        offsets: Offset of each column.
        title: Title of the figure.

    Shape:
        images: [D, N, C, H, W].

    Returns:
        The figure.

    Raises:
        ShapeError: If shapes do not fit.

    Example:
        >>> import torch
        >>> perturbations(torch.rand(16, 3, 1, 28, 28), [-0.1, 0.0, 0.1]).axes[0].get_yticklabels()[15].get_text()
        '16'
    """
    check_images("images", images, "D, N, C, H, W")
    dims, count = images.shape[:2]
    if len(offsets) != count:
        raise ShapeError(f"offsets: expected {count} values, one per column, got {len(offsets)}")
    cells = [[to_rgb(image) for image in row] for row in images]
    height, width, _ = cells[0][0].shape
    cell = 0.56
    figure = new_figure(0.9 + cell * count, 0.9 + cell * dims * height / width)
    axes = hide_axes(figure.add_subplot())
    axes.imshow(mosaic(cells, GAP), interpolation="nearest")
    columns = centres(count, width, GAP)
    axes.set_xticks(columns, [f"{offset:+.2f}" if abs(offset) > 1e-9 else "0" for offset in offsets])
    axes.xaxis.tick_top()
    axes.set_yticks(centres(dims, height, GAP), [str(dim + 1) for dim in range(dims)])
    axes.set_ylabel("dimension", **LABEL)
    if title:
        axes.set_title(title, **TITLE)
    for offset, x in zip(offsets, columns, strict=True):
        if abs(offset) <= 1e-9:
            corner = (x - width / 2 - GAP / 2, -0.5 - GAP / 2)
            size = (width + GAP, dims * (height + GAP))
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=ACCENT, linewidth=1.5, clip_on=False))
    return figure
