"""Confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import to_array
from torchcaps.viz._style import (
    FAINT,
    LABEL,
    ON_DARK,
    ON_LIGHT,
    ON_LIGHT_WARM,
    SHADES,
    TITLE,
    hide_axes,
    new_figure,
    shorten,
)

# Numbers are not readable with more classes.
NUMBERED = 20


def confusion(matrix: Tensor | NDArray[Any], class_names: Sequence[str] | None = None) -> Figure:
    """Draw a confusion matrix, labels in rows and predictions in columns.

    The shade is the square root of the fraction of the row, so that rare errors remain visible.

    Args:
        matrix: Counts.
        class_names: Names of the classes; numbers by default.

    Shape:
        matrix: [J, J].

    Returns:
        The figure.

    Raises:
        ShapeError: If the matrix is not square or the number of names differs.

    Example:
        >>> import torch
        >>> confusion(torch.eye(3, dtype=torch.int64), ["a", "b", "c"]).axes[0].get_title(loc="left")
        'Label (rows), prediction (columns)'
    """
    counts = to_array(matrix)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise ShapeError(f"matrix: expected [J, J], got {counts.shape}")
    classes = counts.shape[0]
    names = [str(index) for index in range(classes)] if class_names is None else list(class_names)
    if len(names) != classes:
        raise ShapeError(f"class_names: expected {classes} names, got {len(names)}")
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # [J, J]
    # The title is 3.6 inches long, with the names beside the axes.
    side = max(3.9, 2.2 + 0.36 * min(classes, 30))
    figure = new_figure(side, side)
    axes = hide_axes(figure.add_subplot())
    # An empty cell has the colour of the page, in dark mode too.
    axes.imshow(np.ma.masked_equal(np.sqrt(share), 0), cmap=SHADES, vmin=0, vmax=1)
    axes.hlines(np.arange(0.5, classes - 1), -0.5, classes - 0.5, color=FAINT, linewidth=0.4)
    axes.vlines(np.arange(0.5, classes - 1), -0.5, classes - 0.5, color=FAINT, linewidth=0.4)
    every = max(1, classes // 40)
    ticks = range(0, classes, every)
    long = max(map(len, names)) > 3
    axes.set_xticks(ticks, [shorten(names[tick]) for tick in ticks], rotation=90 if long else 0)
    axes.set_yticks(ticks, [shorten(names[tick]) for tick in ticks])
    axes.set_title("Label (rows), prediction (columns)", **TITLE)
    correct = int(np.trace(counts))
    axes.set_xlabel(f"{correct} of {int(counts.sum())} correct", **LABEL)
    if classes <= NUMBERED:
        _write_numbers(axes, counts, share)
    return figure


def _write_numbers(axes: Axes, counts: NDArray[Any], share: NDArray[Any]) -> None:
    for row, column in zip(*np.nonzero(counts), strict=True):
        wrong = row != column
        colour = ON_DARK if share[row, column] > 0.3 else ON_LIGHT_WARM if wrong else ON_LIGHT
        text = str(int(counts[row, column]))
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
