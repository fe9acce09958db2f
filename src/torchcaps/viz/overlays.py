"""Two things in one image, each decoded by itself, in red and green: figure 5 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import Pixels, centres, check_images, mosaic, to_picture
from torchcaps.viz._style import INK, NOTE, WARM, frameless, new_figure, shorten

COLUMNS = 8
GAP = 2
# How much of the image shows where neither reconstruction does.
FAINT = 0.4


def overlays(
    images: Tensor,
    reconstructions: Tensor,
    labels: Tensor,
    predictions: Tensor,
    targets: Tensor | None = None,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """Draw images [N, C, H, W] over their two reconstructions [N, 2, C, H, W], the first in red, the second in green.

    Where both are, it is yellow; what neither explains stays grey. Above each stand labels, predictions and targets,
    the classes that were decoded, all [N, 2]; without `targets` they are the predictions. Wrong predictions are written
    in the warm colour, and a star marks a target that is neither label nor prediction.

    >>> pairs = torch.tensor([[1, 2], [3, 4]])
    >>> len(overlays(torch.rand(2, 1, 36, 36), torch.rand(2, 2, 1, 36, 36), pairs, pairs).axes)
    1
    """
    check_images("images", images)
    if images.shape[0] == 0:
        raise ShapeError(f"images: expected at least one image, got {tuple(images.shape)}")
    wanted = (images.shape[0], 2, *images.shape[1:])
    if reconstructions.shape != wanted:
        raise ShapeError(f"reconstructions: expected {wanted}, got {tuple(reconstructions.shape)}")
    targets = predictions if targets is None else targets
    for name, classes in (("labels", labels), ("predictions", predictions), ("targets", targets)):
        if classes.shape != wanted[:2]:
            raise ShapeError(f"{name}: expected {wanted[:2]}, got {tuple(classes.shape)}")
    most = int(torch.stack([labels, predictions, targets]).max())
    names = [str(index) for index in range(most + 1)] if class_names is None else class_names
    pictures = [(to_picture(image), blend(image, pair)) for image, pair in zip(images, reconstructions, strict=True)]
    columns = min(COLUMNS, len(pictures))
    bands = [range(start, min(start + COLUMNS, len(pictures))) for start in range(0, len(pictures), COLUMNS)]
    height, width, _ = pictures[0][0].shape
    figure = new_figure(0.5 + 1.02 * columns, len(bands) * (0.75 + 2 * height / width) + 0.25)
    for place, band in enumerate(bands):
        axes = frameless(figure.add_subplot(len(bands), 1, place + 1))
        rows = [[pictures[index][row] for index in band] for row in range(2)]
        # A last band that is not full keeps the width of the others.
        rows = [row + [1 + 0 * row[0]] * (columns - len(row)) for row in rows]
        axes.imshow(mosaic(rows, GAP), interpolation="nearest")
        axes.set_yticks(centres(2, height, GAP), ["image", "decoded"])
        for index, x in zip(band, centres(len(band), width, GAP), strict=True):
            known = [sorted(kind[index].tolist()) for kind in (labels, predictions)]
            _write(axes, x, known, targets[index].tolist(), names)
        axes.text(-2.5, -2.5, "labels\npredictions\ndecoded", ha="right", va="bottom", **NOTE)
    return figure


def blend(image: Tensor, pair: Tensor) -> Pixels:
    """Two decoded images [2, C, H, W] in red and green over a faint image [C, H, W], as colours [H, W, 3].

    >>> blend(torch.zeros(1, 1, 1), torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)).tolist()
    [[[1.0, 0.0, 0.0]]]
    """
    grey = to_picture(image).mean(axis=-1)  # [H, W]
    red, green = (to_picture(decoded).mean(axis=-1) for decoded in pair)  # [H, W]
    behind = FAINT * grey * (1 - np.maximum(red, green))  # [H, W]
    return np.stack([np.maximum(red, behind), np.maximum(green, behind), behind], axis=-1)


def _write(axes: Axes, x: float, known: list[list[int]], targets: list[int], names: Sequence[str]) -> None:
    labels, predictions = known
    words = [", ".join(shorten(names[index], 6) for index in pair) for pair in known]
    marked = [shorten(names[k], 6) + "*" * (k not in labels and k not in predictions) for k in targets]
    colour = INK if labels == predictions else WARM
    text = "\n".join([*words, ", ".join(marked)])
    axes.text(x, -2.5, text, ha="center", va="bottom", **{**NOTE, "color": colour})
