"""Images, signals, volumes and words beside what a prediction rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import to_array, to_rgb
from torchcaps.viz._style import ACCENT, LABEL, SHADES, TITLE, hide_axes, line_style, new_figure, shorten, style_axes

# Brightness of the image below the relevance.
FAINT = 0.55


def explanation(
    images: Tensor, maps: Tensor, titles: Sequence[str], words: Sequence[Sequence[str]] | None = None
) -> Figure:
    """Draw images above their relevance, as heat over the faint image.

    A signal is drawn as lines over shaded samples, the darker the more relevant. Of a volume, the slice with the most
    relevance is drawn. With words, there is one bar for each.

    Args:
        images: Images in [0, 1], signals or volumes.
        maps: Relevance of the pixels, samples or voxels, not negative.
        titles: One title per image.
        words: Words of each image, if its columns are words.

    Shape:
        images: [N, C, H, W], [N, C, T] or [N, C, D, H, W]; maps: the same without C.

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
        >>> import torch
        >>> len(explanation(torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8), ["cat", "dog"]).axes)
        4
    """
    if images.dim() not in (3, 4, 5):
        raise ShapeError(f"images: expected [N, C, H, W], [N, C, T] or [N, C, D, H, W], got {tuple(images.shape)}")
    if not len(images) or maps.shape != (len(images), *images.shape[2:]):
        raise ShapeError(f"maps: expected {(len(images), *images.shape[2:])} of at least one, got {tuple(maps.shape)}")
    for name, found in (("titles", titles), ("words", words)):
        if found is not None and len(found) != len(images):
            raise ShapeError(f"{name}: expected {len(images)}, got {len(found)}")
    if words is not None:
        return _draw_words(maps.flatten(1), titles, words)
    if images.dim() == 3:
        return _draw_signals(images, maps, titles)
    if images.dim() == 5:
        slices = maps.sum(dim=(2, 3)).argmax(dim=1)  # [N]
        places = np.arange(len(images)), slices
        images, maps = images.transpose(1, 2)[places], maps[places]  # [N, C, H, W], [N, H, W]
        titles = [f"{shorten(title, 14)}, slice {place}" for title, place in zip(titles, slices.tolist(), strict=True)]
    return _draw_images(images, maps, titles)


def _draw_images(images: Tensor, maps: Tensor, titles: Sequence[str]) -> Figure:
    figure = new_figure(0.4 + 1.5 * len(images), 3.4)
    for number, (image, relevance) in enumerate(zip(images, maps, strict=True)):
        colours = to_rgb(image)
        above = hide_axes(figure.add_subplot(2, len(images), number + 1))
        above.imshow(colours, interpolation="nearest")
        above.set_title(shorten(titles[number], 22), **TITLE)
        below = hide_axes(figure.add_subplot(2, len(images), len(images) + number + 1))
        # Channels that are drawn side by side have the same relevance.
        heat = np.tile(to_array(relevance), (1, colours.shape[1] // relevance.shape[1]))
        below.imshow(FAINT * colours, interpolation="nearest")
        heat = heat / max(float(np.quantile(heat, 0.995)), 1e-12)
        below.imshow(heat.clip(0, 1), cmap="inferno", alpha=heat.clip(0, 1) * 0.85, interpolation="nearest")
    return figure


def _draw_signals(signals: Tensor, maps: Tensor, titles: Sequence[str]) -> Figure:
    figure = new_figure(7.0, 0.4 + 1.7 * len(signals))
    for number, (signal, relevance) in enumerate(zip(signals, maps, strict=True)):
        axes = style_axes(figure.add_subplot(len(signals), 1, number + 1), grid=False)
        values, heat = to_array(signal), to_array(relevance)
        low, high = float(values.min()), float(values.max())
        room = 0.05 * (high - low) or 1.0
        box = (-0.5, values.shape[1] - 0.5, low - room, high + room)
        axes.imshow(heat[None], aspect="auto", extent=box, cmap=SHADES, vmin=0, interpolation="nearest")
        for channel, line in enumerate(values):
            axes.plot(line, **{**line_style(channel), "marker": None, "linewidth": 1})
        axes.set_title(shorten(titles[number], 60), **TITLE)
    figure.axes[-1].set_xlabel("sample", **LABEL)
    return figure


def _draw_words(maps: Tensor, titles: Sequence[str], words: Sequence[Sequence[str]]) -> Figure:
    longest = max(1, *map(len, words))
    figure = new_figure(max(4.0, 1.0 + 0.42 * longest), 0.3 + 1.9 * len(maps))
    for number, (relevance, sentence) in enumerate(zip(maps, words, strict=True)):
        axes = style_axes(figure.add_subplot(len(maps), 1, number + 1))
        axes.bar(range(len(sentence)), to_array(relevance[: len(sentence)]), color=ACCENT)
        axes.set_xticks(range(len(sentence)), [shorten(word, 16) for word in sentence], rotation=40, ha="right")
        axes.set_xlim(-0.6, longest - 0.4)
        axes.set_title(shorten(titles[number], 60), **TITLE)
        axes.set_ylabel("relevance", **LABEL)
    return figure
