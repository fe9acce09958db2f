"""Two decodings of one image in red and green, as in figure 5 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import Pixels, centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import INK, NOTE, WARM, hide_axes, new_figure, shorten

COLUMNS = 8
GAP = 2
# Brightness of the image without reconstruction.
FAINT = 0.4


def overlays(
    images: Tensor,
    reconstructions: Tensor,
    labels: Tensor,
    predictions: Tensor,
    targets: Tensor | None = None,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """Draw images above their two reconstructions, the first in red, the second in green.

    Overlaps are yellow, pixels without reconstruction grey. Above each image are its labels, predictions and decoded
    classes. Wrong predictions have the warm colour, and a star marks a decoded class that is neither label nor
    prediction.

    Args:
        images: Images in [0, 1].
        reconstructions: Decodings of two class capsules of each image.
        labels: Labels of the images.
        predictions: Predictions.
        targets: Decoded classes; the predictions by default.
        class_names: Names of the classes; numbers by default.

    Shape:
        images: [N, C, H, W]; reconstructions: [N, 2, C, H, W]; labels, predictions, targets: [N, 2].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
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
    cells = [(to_rgb(image), blend(image, pair)) for image, pair in zip(images, reconstructions, strict=True)]
    columns = min(COLUMNS, len(cells))
    bands = [range(start, min(start + COLUMNS, len(cells))) for start in range(0, len(cells), COLUMNS)]
    height, width, _ = cells[0][0].shape
    figure = new_figure(0.5 + 1.02 * columns, len(bands) * (0.75 + 2 * height / width) + 0.25)
    for place, band in enumerate(bands):
        axes = hide_axes(figure.add_subplot(len(bands), 1, place + 1))
        rows = [[cells[index][row] for index in band] for row in range(2)]
        # All bands have the same width.
        rows = [row + [1 + 0 * row[0]] * (columns - len(row)) for row in rows]
        axes.imshow(mosaic(rows, GAP), interpolation="nearest")
        axes.set_yticks(centres(2, height, GAP), ["image", "decoded"])
        for index, x in zip(band, centres(len(band), width, GAP), strict=True):
            known = [sorted(kind[index].tolist()) for kind in (labels, predictions)]
            _write(axes, x, known, targets[index].tolist(), names)
        axes.text(-2.5, -2.5, "labels\npredictions\ndecoded", ha="right", va="bottom", **NOTE)
    return figure


def blend(image: Tensor, pair: Tensor) -> Pixels:
    """Blend two decodings in red and green over a faint image.

    Args:
        image: Image in [0, 1].
        pair: The two decodings.

    Shape:
        image: [C, H, W]; pair: [2, C, H, W]; returns [H, W, 3].

    Returns:
        The blended colours.

    Example:
        >>> blend(torch.zeros(1, 1, 1), torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)).tolist()
        [[[1.0, 0.0, 0.0]]]
    """
    grey = to_rgb(image).mean(axis=-1)  # [H, W]
    red, green = (to_rgb(decoded).mean(axis=-1) for decoded in pair)  # [H, W]
    behind = FAINT * grey * (1 - np.maximum(red, green))  # [H, W]
    return np.stack([np.maximum(red, behind), np.maximum(green, behind), behind], axis=-1)


def _write(axes: Axes, x: float, known: list[list[int]], targets: list[int], names: Sequence[str]) -> None:
    labels, predictions = known
    words = [", ".join(shorten(names[index], 6) for index in pair) for pair in known]
    marked = [shorten(names[k], 6) + "*" * (k not in labels and k not in predictions) for k in targets]
    colour = INK if labels == predictions else WARM
    text = "\n".join([*words, ", ".join(marked)])
    axes.text(x, -2.5, text, ha="center", va="bottom", **{**NOTE, "color": colour})
