"""Deterministic transforms of a batch of images, with parameters for each image."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.ops.images import shift as shift
from torchcaps.ops.images import windows as windows

# The 13 crops of Hinton et al. 2018 as (down, right): the centre, and the four diagonals at 1, 2 and 3 pixels.
CROPS_13 = ((0, 0), *((down * k, right * k) for k in (1, 2, 3) for down in (-1, 1) for right in (-1, 1)))


def affine_map(size: tuple[int, int], angle: Tensor, factor: Tensor, slope: Tensor) -> Tensor:
    """Return the maps that rotate, scale and shear images about their centres, for `resample`.

    The pixel at offset (x, y) from the centre, y upwards, is that of the image at M^-1 (x, y), where
    M = factor R(angle) [[1, slope], [0, 1]].

    Args:
        size: Height and width of the images.
        angle: Rotation in radians, anticlockwise.
        factor: Scale factor.
        slope: Shear: a row moves to the right by slope times its height above the centre.

    Shape:
        angle, factor, slope: [B]; returns [B, 2, 3].

    Returns:
        The maps.
    """
    height, width = size
    cos, sin = angle.cos() / factor, angle.sin() / factor  # [B]
    # M^-1, with y reversed because rows count downwards.
    inverse = torch.stack([cos + slope * sin, slope * cos - sin, sin, cos], dim=1).view(-1, 2, 2)  # [B, 2, 2]
    # Coordinates count in half widths and half heights; an oblong image needs the correction.
    half = torch.tensor([width / 2, height / 2], dtype=angle.dtype, device=angle.device)  # [2]
    return F.pad(inverse * half / half.view(2, 1), (0, 1))


def window_map(tops: Tensor, lefts: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """Return the maps that scale one window of each image to the size of the image, for `resample`.

    Args:
        tops: Upper edge of each window, as a fraction of the height.
        lefts: Left edge of each window, as a fraction of the width.
        heights: Height of each window, as a fraction.
        widths: Width of each window, as a fraction.

    Shape:
        tops, lefts, heights, widths: [B]; returns [B, 2, 3].

    Returns:
        The maps.
    """
    zeros = torch.zeros_like(tops)
    across = torch.stack([widths, zeros, 2 * lefts + widths - 1], dim=1)  # [B, 3]
    down = torch.stack([zeros, heights, 2 * tops + heights - 1], dim=1)  # [B, 3]
    return torch.stack([across, down], dim=1)


def resample(images: Tensor, maps: Tensor, moves: Tensor | None = None) -> Tensor:
    """Take each pixel from the place in the image to which a linear map leads, by bilinear interpolation.

    Places count from -1 to 1 across the image, rightwards and downwards. Those outside of the image repeat its edge, so
    that a bright background gets no dark corners.

    Args:
        images: Float images.
        maps: From the coordinates of the result to those of the image.
        moves: Displacements, right and down in pixels, of N x N points that span the image from edge to edge, with
            cubic interpolation between them.

    Shape:
        images: [B, C, H, W]; maps: [B, 2, 3]; moves: [B, 2, N, N]; returns [B, C, H, W].

    Returns:
        The resampled images.
    """
    height, width = images.shape[-2:]
    rows, cols = ((2 * torch.arange(size).to(maps) + 1) / size - 1 for size in (height, width))
    # `F.affine_grid` multiplies a matrix for every pixel; a row and a column that are added take a fifth of its time.
    across = cols[:, None] * maps[:, None, :, 0]  # [B, W, 2]
    down = rows[:, None] * maps[:, None, :, 1] + maps[:, None, :, 2]  # [B, H, 2]
    grid = across[:, None] + down[:, :, None]  # [B, H, W, 2]
    if moves is not None:
        field = F.interpolate(moves, (height, width), mode="bicubic", align_corners=True)  # [B, 2, H, W]
        grid = grid + field.permute(0, 2, 3, 1) * (2 / grid.new_tensor([width, height]))  # [B, H, W, 2]
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def affine(images: Tensor, angle: Tensor, factor: Tensor, slope: Tensor, moves: Tensor | None = None) -> Tensor:
    """Rotate, scale, shear and displace each image in one bilinear interpolation; see `affine_map` and `resample`.

    Args:
        images: Float images.
        angle: Rotation in radians, anticlockwise.
        factor: Scale factor.
        slope: Shear.
        moves: Displacements in pixels.

    Shape:
        images: [B, C, H, W]; angle, factor, slope: [B]; moves: [B, 2, N, N]; returns [B, C, H, W].

    Returns:
        The transformed images.
    """
    height, width = images.shape[-2:]
    return resample(images, affine_map((height, width), angle, factor, slope), moves)


def erase(images: Tensor, tops: Tensor, lefts: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """Set one rectangle of each image to zero.

    Args:
        images: Images of any type.
        tops: First row of each rectangle.
        lefts: First column of each rectangle.
        heights: Height of each rectangle.
        widths: Width of each rectangle.

    Shape:
        images: [B, C, H, W]; tops, lefts, heights, widths: [B]; returns [B, C, H, W].

    Returns:
        The images with zeros in the rectangles.
    """
    rows = torch.arange(images.shape[-2], device=images.device) - tops[:, None]  # [B, H]
    cols = torch.arange(images.shape[-1], device=images.device) - lefts[:, None]  # [B, W]
    in_rows = (rows >= 0) & (rows < heights[:, None])  # [B, H]
    in_cols = (cols >= 0) & (cols < widths[:, None])  # [B, W]
    inside = in_rows[:, :, None] & in_cols[:, None, :]  # [B, H, W]
    # A product takes a ninth of the time of `masked_fill`.
    return images * (~inside).to(images.dtype)[:, None]


def relight(images: Tensor, brighter: Tensor, contrast: Tensor) -> Tensor:
    """Scale each channel of each image about its mean, add a constant, and clamp to [0, 1].

    Args:
        images: Float images in [0, 1].
        brighter: Constant that is added.
        contrast: Scale factor.

    Shape:
        images: [B, C, H, W]; brighter, contrast: [B]; returns [B, C, H, W].

    Returns:
        The images with other brightness and contrast.
    """
    means = images.mean(dim=(2, 3), keepdim=True)  # [B, C, 1, 1]
    scaled = (images - means) * contrast.view(-1, 1, 1, 1) + means  # [B, C, H, W]
    return (scaled + brighter.view(-1, 1, 1, 1)).clamp(0, 1)


def recolour(
    images: Tensor, saturation: Tensor, hue: Tensor, brighter: Tensor | None = None, contrast: Tensor | None = None
) -> Tensor:
    """Change the colours of each image, as `relight` does and before that about the grey axis, and clamp to [0, 1].

    Args:
        images: Float images of red, green and blue, in [0, 1].
        saturation: Factor of the distance of each pixel from grey; 0 gives grey.
        hue: Angle in radians by which each colour is turned about the grey axis.
        brighter: Constant that is added.
        contrast: Factor of the distance of each pixel from the mean of the image.

    Shape:
        images: [B, 3, H, W]; saturation, hue, brighter, contrast: [B]; returns [B, 3, H, W].

    Returns:
        The images in other colours.

    Raises:
        ShapeError: If the images do not have three channels.
    """
    if images.shape[1] != 3:
        raise ShapeError(f"images: expected 3 channels for saturation and hue, got {tuple(images.shape)}")
    # A rotation about (1, 1, 1): the mean of the channels stays.
    third, cross = torch.full((3, 3), 1 / 3), torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / 3**0.5
    third, cross, whole = (matrix.to(images) for matrix in (third, cross, torch.eye(3)))
    cos, sin, factor = (values.view(-1, 1, 1) for values in (hue.cos(), hue.sin(), saturation))
    matrix = third + factor * (cos * (whole - third) + sin * cross)  # [B, 3, 3]
    bias = images.new_zeros(1, 1, 1)
    if brighter is not None:
        bias = bias + brighter.view(-1, 1, 1)
    if contrast is not None:
        scale = contrast.view(-1, 1, 1)
        means = matrix @ images.mean(dim=(2, 3)).unsqueeze(-1)  # [B, 3, 1]
        matrix, bias = scale * matrix, bias + (1 - scale) * means
    pixels = torch.baddbmm(bias.expand(len(images), 3, 1), matrix, images.flatten(2))  # [B, 3, H * W]
    return pixels.clamp_(0, 1).view_as(images)


def crop(images: Tensor, size: int, down: int = 0, right: int = 0) -> Tensor:
    """Crop the same square of each image: its centre, or one at an offset from the centre.

    The 13 crops of an evaluation are `[crop(images, 32, *offset) for offset in CROPS_13]`.

    Args:
        images: Images of any type.
        size: Side of the square.
        down: Offset downwards, in pixels.
        right: Offset to the right, in pixels.

    Shape:
        images: [..., H, W]; returns [..., size, size].

    Returns:
        A view of the images.

    Raises:
        ShapeError: If the square leaves the image.

    Example:
        >>> crop(torch.arange(16.0).view(1, 1, 4, 4), 2)
        tensor([[[[ 5.,  6.],
                  [ 9., 10.]]]])
    """
    height, width = images.shape[-2:]
    top, left = (height - size) // 2 + down, (width - size) // 2 + right
    if not (0 <= top <= height - size and 0 <= left <= width - size):
        raise ShapeError(
            f"images: expected at least {size + 2 * abs(down)}x{size + 2 * abs(right)} pixels for a crop of {size} "
            f"at offset ({down}, {right}), got {height}x{width}"
        )
    return images[..., top : top + size, left : left + size]


def shrink(images: Tensor, size: int) -> Tensor:
    """Average images over blocks of pixels down to size x size, rounded (96 to 48 for smallNORB).

    Args:
        images: Images, uint8.
        size: Side of the result, a divisor of height and width.

    Shape:
        images: [N, C, H, W]; returns [N, C, size, size].

    Returns:
        The smaller images, uint8.

    Raises:
        ShapeError: If `size` does not divide height and width.

    Example:
        >>> shrink(torch.tensor([[0, 3], [4, 4]], dtype=torch.uint8).view(1, 1, 2, 2), 1)
        tensor([[[[3]]]], dtype=torch.uint8)
    """
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size:
        raise ShapeError(f"image_size: expected a divisor of {height} and {width}, got {size}")
    if (height, width) == (size, size):
        return images
    down, right = height // size, width // size
    # numpy adds and divides integers three times as fast as torch.
    pixels = images.numpy()
    sums = np.full((*images.shape[:2], size, size), down * right // 2, np.uint32)  # [N, C, size, size]
    for row in range(down):
        for col in range(right):
            sums += pixels[..., row::down, col::right]
    sums //= down * right
    return torch.from_numpy(sums.astype(np.uint8))
