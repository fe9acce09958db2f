"""Reconstructions beside their images, as in figure 3 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_picture
from torchcaps.viz._style import INK, NOTE, WARM, frameless, new_figure, shorten

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
    """Draw images [N, C, H, W] over their reconstructions [N, C, H, W], eight to a band.

    Above each stand label, prediction and target, the class whose capsule was decoded, on one line or, with longer
    names, on three; all are class numbers [N], and without `targets` they are the predictions. Wrong predictions are
    written in the warm colour.

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
    height, width = images.shape[-2], to_picture(images[0]).shape[1]
    columns = min(COLUMNS, len(triples))
    lines = 1 if max(map(len, names)) <= 2 else 3
    figure = new_figure(0.5 + 1.02 * columns, len(bands) * (0.3 + 0.15 * lines + 2 * height / width) + 0.25)
    for place, band in enumerate(bands):
        axes = frameless(figure.add_subplot(len(bands), 1, place + 1))
        rows = [[to_picture(source[index]) for index in band] for source in (images, reconstructions)]
        # A last band that is not full keeps the width of the others.
        rows = [row + [1 + 0 * row[0]] * (columns - len(row)) for row in rows]
        axes.imshow(mosaic(rows, GAP), interpolation="nearest")
        axes.set_yticks(centres(2, height, GAP), ["image", "decoded"])
        _write_triples(axes, [triples[index] for index in band], centres(len(band), width, GAP), names)
    return figure


def _write_triples(axes: Axes, triples: list[tuple[int, int, int]], places: list[float], names: Sequence[str]) -> None:
    short = max(map(len, names)) <= 2
    for triple, x in zip(triples, places, strict=True):
        words = [shorten(names[index], 11) for index in triple]
        text = f"({', '.join(words)})" if short else "\n".join(words)
        colour = INK if triple[0] == triple[1] else WARM
        axes.text(x, -2.5, text, ha="center", va="bottom", **{**NOTE, "color": colour})
    if not short:
        axes.text(-2.5, -2.5, "label\nprediction\ntarget", ha="right", va="bottom", **NOTE)
