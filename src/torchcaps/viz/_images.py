"""Tensors as arrays that matplotlib draws: single images, and grids of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import ShapeError

Pixels = NDArray[np.float32]


def to_array(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    """Return a tensor as an array, detached and on the CPU; an array is returned unchanged."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def check_images(name: str, images: Tensor, axes: str = "N, C, H, W") -> None:
    """Raise ShapeError unless images have these axes."""
    count = len(axes.split(","))
    if images.dim() != count:
        raise ShapeError(f"{name}: expected [{axes}], got {tuple(images.shape)} ({images.dim()} axes)")


def to_rgb(image: Tensor) -> Pixels:
    """Return an image [C, H, W] in [0, 1] as colours [H, W, 3].

    Three channels are RGB. Any other number of channels is drawn side by side in grey.

    >>> import torch
    >>> to_rgb(torch.zeros(2, 5, 4)).shape
    (5, 8, 3)
    """
    pixels = to_array(image.float().clamp(0, 1)).astype(np.float32)
    if pixels.shape[0] == 3:
        return np.moveaxis(pixels, 0, -1)
    grey = np.concatenate(list(pixels), axis=-1)  # [H, C*W]
    return np.repeat(grey[..., None], 3, axis=-1)


def mosaic(cells: list[list[Pixels]], gap: int = 2) -> Pixels:
    """Return rows of equally large images as one image, separated by `gap` white pixels."""
    height, width, _ = cells[0][0].shape
    rows, columns = len(cells), max(map(len, cells))
    canvas = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), dtype=np.float32)
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            top, left = row * (height + gap), column * (width + gap)
            canvas[top : top + height, left : left + width] = cell
    return canvas


def centres(count: int, size: int, gap: int = 2) -> list[float]:
    """Return the centres of the cells of a mosaic along one axis, in pixels."""
    return [index * (size + gap) + (size - 1) / 2 for index in range(count)]
