"""Images, and under each what several networks say it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import centres, check_images, mosaic, to_picture
from torchcaps.viz._style import INK, LABEL, NOTE, TITLE, WARM, frameless, new_figure, shorten

COLUMNS = 8
GAP = 2
# The height of a line of answers, in points.
LINE = 11


def answers(
    images: Tensor,
    labels: Tensor,
    said: Mapping[str, Tensor],
    groups: Mapping[str, Sequence[int]],
    class_names: Sequence[str],
) -> Figure:
    """Draw images [N, C, H, W] with their labels [N] above and the answers of each network, [N], below.

    `groups` say which images stand under which heading, eight to a band. A wrong answer is written in the warm colour
    with a cross behind it.

    >>> import torch
    >>> truth = torch.tensor([0, 1])
    >>> said = {"capsules": truth, "cnn": torch.tensor([0, 0])}
    >>> sheet = answers(torch.rand(2, 1, 8, 8), truth, said, {"both": [0, 1]}, ["cat", "dog"])
    >>> [text.get_text() for text in sheet.axes[0].texts]
    ['cat', 'cat', 'cat', 'dog', 'dog', 'cat ✗', 'label', 'capsules', 'cnn']
    """
    check_images("images", images)
    for name, classes in (("labels", labels), *said.items()):
        if classes.shape != images.shape[:1]:
            raise ShapeError(f"{name}: expected {tuple(images.shape[:1])}, got {tuple(classes.shape)}")
    bands = [
        (heading if start == 0 else "", places[start : start + COLUMNS])
        for heading, places in groups.items()
        for start in range(0, len(places), COLUMNS)
    ]
    if not bands:
        raise ShapeError("groups: expected at least one image, got none")
    white = 1 + 0 * to_picture(images[0])
    height, width, _ = white.shape
    figure = new_figure(10.2, 0.2 + len(bands) * (0.75 + 1.0 * height / width + len(said) * LINE / 72))
    for number, (heading, places) in enumerate(bands):
        axes = frameless(figure.add_subplot(len(bands), 1, number + 1))
        pictures = [to_picture(images[place]) for place in places]
        # A band that is not full keeps the width of the others.
        axes.imshow(mosaic([pictures + [white] * (COLUMNS - len(pictures))], GAP), interpolation="nearest")
        for place, x in zip(places, centres(len(places), width, GAP), strict=True):
            _write(axes, (x, height), int(labels[place]), [int(each[place]) for each in said.values()], class_names)
        for line, name in enumerate(["label", *said]):
            _note(axes, name if line == 0 else shorten(name, 40), (-GAP, height if line else -0.5), line, "right")
        if heading:
            axes.set_title(heading, **{**TITLE, "pad": 18})
    return figure


def _write(axes: Axes, foot: tuple[float, float], label: int, said: Sequence[int], names: Sequence[str]) -> None:
    x, bottom = foot
    _note(axes, shorten(names[label], 8), (x, -0.5), 0, "center")
    for line, answer in enumerate(said):
        wrong = answer != label
        text = shorten(names[answer], 8) + (" ✗" if wrong else "")
        _note(axes, text, (x, bottom), line + 1, "center", WARM if wrong else INK)


def _note(axes: Axes, text: str, at: tuple[float, float], line: int, align: str, colour: str = LABEL["color"]) -> None:
    """A word in line 0, above the picture, or in one of those below it."""
    offset = 3 if line == 0 else 1 - LINE * line
    how = {**NOTE, "color": colour}
    axes.annotate(
        text, at, (0, offset), textcoords="offset points", ha=align, va="bottom", annotation_clip=False, **how
    )
