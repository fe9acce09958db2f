"""Images beside their reconstructions, as in figure 3 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import INK, NOTE, WARM, hide_axes, new_figure, shorten

COLUMNS = 8
GAP = 2


def reconstructions(
    images: Tensor,
    reconstructions: Tensor,
    labels: Tensor,
    predictions: Tensor,
    targets: Tensor | None = None,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """Draw images above their reconstructions, eight to a band.

    Above each image are its label, prediction and decoded class. Wrong predictions have the warm colour.

    Args:
        images: Images in [0, 1].
        reconstructions: Decodings of one class capsule of each image.
        labels: Labels of the images.
        predictions: Predictions.
        targets: Decoded classes; the predictions by default.
        class_names: Names of the classes; numbers by default.

    Shape:
        images, reconstructions: [N, C, H, W]; labels, predictions, targets: [N].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
        >>> digits, classes = torch.rand(3, 1, 28, 28), torch.tensor([1, 2, 3])
        >>> len(reconstructions(digits, digits, classes, classes).axes)
        1
    """
    check_images("images", images)
    if images.shape[0] == 0:
        raise ShapeError(f"images: expected at least one image, got {tuple(images.shape)}")
    if reconstructions.shape != images.shape:
        raise ShapeError(f"reconstructions: expected {tuple(images.shape)}, got {tuple(reconstructions.shape)}")
    targets = predictions if targets is None else targets
    for name, classes in (("labels", labels), ("predictions", predictions), ("targets", targets)):
        if classes.shape != images.shape[:1]:
            raise ShapeError(f"{name}: expected {tuple(images.shape[:1])}, got {tuple(classes.shape)}")
    names = (
        [str(index) for index in range(int(torch.stack([labels, predictions, targets]).max()) + 1)]
        if class_names is None
        else class_names
    )
    triples = list(zip(labels.tolist(), predictions.tolist(), targets.tolist(), strict=True))
    bands = [range(start, min(start + COLUMNS, len(triples))) for start in range(0, len(triples), COLUMNS)]
    height, width = images.shape[-2], to_rgb(images[0]).shape[1]
    columns = min(COLUMNS, len(triples))
    figure = new_figure(0.5 + 1.02 * columns, len(bands) * (0.75 + 2 * height / width) + 0.25)
    for place, band in enumerate(bands):
        axes = hide_axes(figure.add_subplot(len(bands), 1, place + 1))
        rows = [[to_rgb(source[index]) for index in band] for source in (images, reconstructions)]
        # All bands have the same width.
        rows = [row + [1 + 0 * row[0]] * (columns - len(row)) for row in rows]
        axes.imshow(mosaic(rows, GAP), interpolation="nearest")
        axes.set_yticks(centres(2, height, GAP), ["image", "decoding"])
        _write_classes(axes, [triples[index] for index in band], centres(len(band), width, GAP), names)
    return figure


def _write_classes(axes: Axes, triples: list[tuple[int, int, int]], places: list[float], names: Sequence[str]) -> None:
    for triple, x in zip(triples, places, strict=True):
        text = "\n".join(shorten(names[index], 11) for index in triple)
        colour = INK if triple[0] == triple[1] else WARM
        axes.text(x, -2.5, text, ha="center", va="bottom", **{**NOTE, "color": colour})
    axes.text(-2.5, -2.5, "label\nprediction\ndecoded class", ha="right", va="bottom", **NOTE)
