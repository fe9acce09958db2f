"""Images beside the pixels that a prediction rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import check_images, to_array, to_rgb
from torchcaps.viz._style import TITLE, hide_axes, new_figure, shorten

# Brightness of the image below the relevance.
FAINT = 0.55


def explanation(images: Tensor, maps: Tensor, titles: Sequence[str]) -> Figure:
    """Draw images above their relevance, as heat over the faint image.

    Args:
        images: Images in [0, 1].
        maps: Relevance of the pixels, not negative.
        titles: One title per image.

    Shape:
        images: [N, C, H, W]; maps: [N, H, W].

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no images, or shapes do not fit.

    Example:
        >>> import torch
        >>> len(explanation(torch.rand(2, 1, 8, 8), torch.rand(2, 8, 8), ["cat", "dog"]).axes)
        4
    """
    check_images("images", images)
    if not len(images) or maps.shape != (len(images), *images.shape[2:]):
        raise ShapeError(f"maps: expected {(len(images), *images.shape[2:])} of at least one, got {tuple(maps.shape)}")
    if len(titles) != len(images):
        raise ShapeError(f"titles: expected {len(images)}, got {len(titles)}")
    figure = new_figure(0.4 + 1.5 * len(images), 3.4)
    for number, (image, relevance) in enumerate(zip(images, maps, strict=True)):
        colours = to_rgb(image)
        above = hide_axes(figure.add_subplot(2, len(images), number + 1))
        above.imshow(colours, interpolation="nearest")
        above.set_title(shorten(titles[number], 22), **TITLE)
        below = hide_axes(figure.add_subplot(2, len(images), len(images) + number + 1))
        below.imshow(FAINT * colours, interpolation="nearest")
        heat = to_array(relevance)
        heat = heat / max(float(np.quantile(heat, 0.995)), 1e-12)
        below.imshow(heat.clip(0, 1), cmap="inferno", alpha=heat.clip(0, 1) * 0.85, interpolation="nearest")
    return figure
