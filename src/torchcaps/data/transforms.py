"""What can be done to a batch of images [B, C, H, W], each with numbers of its own; nothing here is random."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError

# The centre, and the four diagonals at 1, 2 and 3 pixels: the 13 crops of Hinton et al. 2018, as (down, right).
CROPS_13 = ((0, 0), *((down * k, right * k) for k in (1, 2, 3) for down in (-1, 1) for right in (-1, 1)))


def windows(images: Tensor, tops: Tensor, lefts: Tensor, height: int, width: int) -> Tensor:
    """Cut one window out of each image: tops [B] and lefts [B] say where, pixels stay as they are.

    >>> windows(torch.arange(9.0).view(1, 1, 3, 3), torch.tensor([1]), torch.tensor([0]), 2, 2)
    tensor([[[[3., 4.],
              [6., 7.]]]])
    """
    # Every window as a view; only those that are asked for are copied.
    every = images.unfold(2, height, 1).unfold(3, width, 1)  # [B, C, H', W', height, width]
    batch = torch.arange(len(images), device=images.device)  # [B]
    return every[batch, :, tops, lefts]  # [B, C, height, width]


def shift(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Move each image by whole pixels, down [B] and right [B]; what leaves is gone, what enters is zero.

    >>> shift(torch.ones(1, 1, 2, 3), torch.tensor([1]), torch.tensor([-1]))
    tensor([[[[0., 0., 0.],
              [1., 1., 0.]]]])
    """
    height, width = images.shape[-2:]
    reach = int(torch.stack([down.abs(), right.abs()]).max()) if len(images) else 0
    padded = F.pad(images, (reach, reach, reach, reach))  # [B, C, H + 2 reach, W + 2 reach]
    return windows(padded, reach - down, reach - right, height, width)


def affine(images: Tensor, angle: Tensor, factor: Tensor, slope: Tensor, moves: Tensor | None = None) -> Tensor:
    """Turn, enlarge and shear each image about its centre, and bend it, in one bilinear interpolation.

    Beyond its edge an image goes on as at the edge, so that a bright ground gets no dark corners.
    angle [B] in radians turns anticlockwise, factor [B] enlarges, slope [B] moves each row to the right by slope times
    its height above the centre. A pixel of the result at offset (x, y) from the centre, y up, is the one of the image
    at M^-1 (x, y), where M = factor R(angle) [[1, slope], [0, 1]]. moves [B, 2, N, N], right and down in pixels, are
    added to that place: those of N x N points that span the image from edge to edge, with cubic interpolation between.
    """
    height, width = images.shape[-2:]
    cos, sin = angle.cos() / factor, angle.sin() / factor  # [B]
    # M^-1, with y turned over because rows count downwards.
    inverse = torch.stack([cos + slope * sin, slope * cos - sin, sin, cos], dim=1).view(-1, 2, 2)  # [B, 2, 2]
    # grid_sample counts in half widths and half heights: without this, an oblong image would be distorted.
    half = torch.tensor([width / 2, height / 2], dtype=images.dtype, device=images.device)  # [2]
    theta = F.pad(inverse * half / half.view(2, 1), (0, 1))  # [B, 2, 3]
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)  # [B, H, W, 2]
    if moves is not None:
        field = F.interpolate(moves, (height, width), mode="bicubic", align_corners=True)  # [B, 2, H, W]
        grid = grid + field.permute(0, 2, 3, 1) / half  # [B, H, W, 2]
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def erase(images: Tensor, tops: Tensor, lefts: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """Set one rectangle of each image to zero; all of tops, lefts, heights and widths are [B]."""
    rows = torch.arange(images.shape[-2], device=images.device) - tops[:, None]  # [B, H]
    cols = torch.arange(images.shape[-1], device=images.device) - lefts[:, None]  # [B, W]
    in_rows = (rows >= 0) & (rows < heights[:, None])  # [B, H]
    in_cols = (cols >= 0) & (cols < widths[:, None])  # [B, W]
    return images.masked_fill((in_rows[:, :, None] & in_cols[:, None, :])[:, None], 0)


def relight(images: Tensor, brighter: Tensor, contrast: Tensor) -> Tensor:
    """Scale each channel of each image about its mean by contrast [B], add brighter [B], keep to [0, 1]."""
    means = images.mean(dim=(2, 3), keepdim=True)  # [B, C, 1, 1]
    scaled = (images - means) * contrast.view(-1, 1, 1, 1) + means  # [B, C, H, W]
    return (scaled + brighter.view(-1, 1, 1, 1)).clamp(0, 1)


def crop(images: Tensor, size: int, down: int = 0, right: int = 0) -> Tensor:
    """The same square of each image: its centre, or that many pixels away from the centre.

    The 13 crops of an evaluation are `[crop(images, 32, *place) for place in CROPS_13]`.

    >>> crop(torch.arange(16.0).view(1, 1, 4, 4), 2)
    tensor([[[[ 5.,  6.],
              [ 9., 10.]]]])
    """
    height, width = images.shape[-2:]
    top, left = (height - size) // 2 + down, (width - size) // 2 + right
    if not (0 <= top <= height - size and 0 <= left <= width - size):
        raise ShapeError(
            f"images: expected at least {size + 2 * abs(down)}x{size + 2 * abs(right)} pixels for a crop of {size} "
            f"at ({down}, {right}) from the centre, got {height}x{width}"
        )
    return images[..., top : top + size, left : left + size]


def shrink(images: Tensor, size: int) -> Tensor:
    """Bytes [N, C, H, W] averaged over square blocks down to size x size, and rounded (96 to 48 for smallNORB).

    >>> shrink(torch.tensor([[0, 3], [4, 4]], dtype=torch.uint8).view(1, 1, 2, 2), 1)
    tensor([[[[3]]]], dtype=torch.uint8)
    """
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size:
        raise ShapeError(f"image_size: expected a divisor of {height} and {width}, got {size}")
    if (height, width) == (size, size):
        return images
    down, right = height // size, width // size
    # numpy adds and divides whole numbers three times as fast as torch.
    pixels = images.numpy()
    sums = np.full((*images.shape[:2], size, size), down * right // 2, np.uint32)  # [N, C, size, size]
    for row in range(down):
        for col in range(right):
            sums += pixels[..., row::down, col::right]
    sums //= down * right
    return torch.from_numpy(sums.astype(np.uint8))
