"""Windows and shifts of images: exact, without interpolation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def windows(images: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int) -> Tensor:
    """Cut one window out of each image.

    Args:
        images: Batch of images.
        tops: First row of each window.
        lefts: First column of each window.
        height: Height of the windows.
        width: Width of the windows.

    Shape:
        images [B, C, H, W], tops [B], lefts [B]; returns [B, C, height, width].

    Returns:
        The windows.

    Example:
        >>> windows(torch.arange(9.0).view(1, 1, 3, 3), torch.tensor([1]), torch.tensor([0]), 2, 2)
        tensor([[[[3., 4.],
                  [6., 7.]]]])
    """
    # Every window is a view; only the selected ones are copied.
    every = images.unfold(2, height, 1).unfold(3, width, 1)  # [B, C, H', W', height, width]
    batch = torch.arange(len(images), device=images.device)  # [B]
    return every[batch, :, tops, lefts]  # [B, C, height, width]


def shift(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Shift each image by whole pixels; pixels that enter are zero.

    Args:
        images: Batch of images.
        down: Shift of each image downwards, in pixels.
        right: Shift of each image to the right, in pixels.

    Shape:
        images [B, C, H, W], down [B], right [B]; returns [B, C, H, W].

    Returns:
        The shifted images.

    Example:
        >>> shift(torch.ones(1, 1, 2, 3), torch.tensor([1]), torch.tensor([-1]))
        tensor([[[[0., 0., 0.],
                  [1., 1., 0.]]]])
    """
    height, width = images.shape[-2:]
    reach = int(torch.stack([down.abs(), right.abs()]).max()) if len(images) else 0
    padded = F.pad(images, (reach, reach, reach, reach))  # [B, C, H + 2 reach, W + 2 reach]
    return windows(padded, reach - down, reach - right, height, width)
