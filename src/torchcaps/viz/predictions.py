"""Images with the predictions of several networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_rgb
from torchcaps.viz._style import INK, LABEL, NOTE, TITLE, WARM, hide_axes, new_figure, shorten

COLUMNS = 8
GAP = 2
# The height of a line of text, in points.
LINE = 11


def predictions(
    images: Tensor,
    labels: Tensor,
    predictions: Mapping[str, Tensor],
    groups: Mapping[str, Sequence[int]],
    class_names: Sequence[str],
) -> Figure:
    """Draw images with their labels above and the predictions of each network below.

    A wrong prediction has the warm colour and a cross.

    Args:
        images: Images in [0, 1].
        labels: Labels of the images.
        predictions: Predictions by network.
        groups: Indices of the images by heading, drawn eight to a band.
        class_names: Names of the classes.

    Shape:
        images: [N, C, H, W]; labels and each of the predictions: [N].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
        >>> import torch
        >>> labels = torch.tensor([0, 1])
        >>> predicted = {"capsules": labels, "cnn": torch.tensor([0, 0])}
        >>> figure = predictions(torch.rand(2, 1, 8, 8), labels, predicted, {"all": [0, 1]}, ["cat", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['cat', 'cat', 'cat', 'dog', 'dog', 'cat ✗', 'label', 'capsules', 'cnn']
    """
    check_images("images", images)
    for name, classes in (("labels", labels), *predictions.items()):
        if classes.shape != images.shape[:1]:
            raise ShapeError(f"{name}: expected {tuple(images.shape[:1])}, got {tuple(classes.shape)}")
    bands = [
        (heading if start == 0 else "", places[start : start + COLUMNS])
        for heading, places in groups.items()
        for start in range(0, len(places), COLUMNS)
    ]
    if not bands:
        raise ShapeError("groups: expected at least one image, got 0")
    white = 1 + 0 * to_rgb(images[0])
    height, width, _ = white.shape
    figure = new_figure(10.2, 0.2 + len(bands) * (0.75 + 1.0 * height / width + len(predictions) * LINE / 72))
    for number, (heading, places) in enumerate(bands):
        axes = hide_axes(figure.add_subplot(len(bands), 1, number + 1))
        cells = [to_rgb(images[place]) for place in places]
        # All bands have the same width.
        axes.imshow(mosaic([cells + [white] * (COLUMNS - len(cells))], GAP), interpolation="nearest")
        for place, x in zip(places, centres(len(places), width, GAP), strict=True):
            predicted = [int(each[place]) for each in predictions.values()]
            _write(axes, (x, height), int(labels[place]), predicted, class_names)
        for line, name in enumerate(["label", *predictions]):
            _note(axes, name if line == 0 else shorten(name, 40), (-GAP, height if line else -0.5), line, "right")
        if heading:
            axes.set_title(heading, **{**TITLE, "pad": 18})
    return figure


def _write(axes: Axes, foot: tuple[float, float], label: int, predicted: Sequence[int], names: Sequence[str]) -> None:
    x, bottom = foot
    _note(axes, shorten(names[label], 8), (x, -0.5), 0, "center")
    for line, prediction in enumerate(predicted):
        wrong = prediction != label
        text = shorten(names[prediction], 8) + (" ✗" if wrong else "")
        _note(axes, text, (x, bottom), line + 1, "center", WARM if wrong else INK)


def _note(axes: Axes, text: str, at: tuple[float, float], line: int, align: str, colour: str = LABEL["color"]) -> None:
    """Write text in line 0, above the image, or in a line below it."""
    offset = 3 if line == 0 else 1 - LINE * line
    style = {**NOTE, "color": colour}
    axes.annotate(
        text, at, (0, offset), textcoords="offset points", ha=align, va="bottom", annotation_clip=False, **style
    )
