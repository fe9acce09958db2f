"""From tensors to what matplotlib draws: single pictures, and many of them side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import ShapeError

Pixels = NDArray[np.float32]


def to_array(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    """A tensor from any device, with or without gradient, as an array; an array as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def check_images(name: str, images: Tensor, axes: str = "N, C, H, W") -> None:
    """Raise unless images have these axes."""
    count = len(axes.split(","))
    if images.dim() != count:
        raise ShapeError(f"{name}: expected [{axes}], got {tuple(images.shape)} ({images.dim()} axes)")


def to_picture(image: Tensor) -> Pixels:
    """One image [C, H, W] in [0, 1] as colours [H, W, 3]: grey, RGB, or any other channels side by side in grey.

    >>> import torch
    >>> to_picture(torch.zeros(2, 5, 4)).shape
    (5, 8, 3)
    """
    pixels = to_array(image.float().clamp(0, 1)).astype(np.float32)
    if pixels.shape[0] == 3:
        return np.moveaxis(pixels, 0, -1)
    grey = np.concatenate(list(pixels), axis=-1)  # [H, C*W]
    return np.repeat(grey[..., None], 3, axis=-1)


def mosaic(pictures: list[list[Pixels]], gap: int = 2) -> Pixels:
    """Rows of equally large pictures as one, on white, with a gap of white pixels between them."""
    height, width, _ = pictures[0][0].shape
    rows, columns = len(pictures), max(map(len, pictures))
    canvas = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), dtype=np.float32)
    for row, line in enumerate(pictures):
        for column, picture in enumerate(line):
            top, left = row * (height + gap), column * (width + gap)
            canvas[top : top + height, left : left + width] = picture
    return canvas


def centres(count: int, size: int, gap: int = 2) -> list[float]:
    """Where the middles of the pictures of a mosaic lie along one axis, in pixels."""
    return [index * (size + gap) + (size - 1) / 2 for index in range(count)]
