"""Convolution of complex numbers, magnitude and phase, as Trabelsi and others 2018 define it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError


def to_complex(maps: Tensor) -> Tensor:
    """Return maps of pairs as complex maps.

    Args:
        maps: Maps whose channels are pairs of real and imaginary part.

    Shape:
        maps: [B, C*2, H, W]; returns complex [B, C, H, W].

    Returns:
        The complex maps.

    Raises:
        ShapeError: If the maps have another number of axes, or an odd number of channels.

    Example:
        >>> to_complex(torch.tensor([1.0, 2.0]).view(1, 2, 1, 1)).item()
        (1+2j)
    """
    if maps.dim() != 4 or maps.shape[1] % 2:
        raise ShapeError(f"maps: expected [B, C*2, H, W], pairs of real and imaginary part, got {tuple(maps.shape)}")
    return torch.complex(*(part.contiguous() for part in maps.unflatten(1, (-1, 2)).unbind(2)))


def from_complex(maps: Tensor) -> Tensor:
    """Return complex maps as maps of pairs, the inverse of `to_complex`.

    Args:
        maps: Complex maps.

    Shape:
        maps: complex [B, C, H, W]; returns [B, C*2, H, W].

    Returns:
        The maps of pairs.

    Example:
        >>> from_complex(torch.full((1, 1, 1, 1), 1 + 2j)).flatten().tolist()
        [1.0, 2.0]
    """
    return torch.stack([maps.real, maps.imag], dim=2).flatten(1, 2)


def complex_conv2d(maps: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """Convolve complex maps with a complex kernel: the reference of `nn.ComplexConv2d`.

    z * w = (x * a - y * b) + i (x * b + y * a) for z = x + i y and w = a + i b (Trabelsi et al. 2018, eq. 2).

    Args:
        maps: Maps of pairs.
        weight: Kernels of pairs.
        stride: Stride of the convolution.
        padding: Zeros around the maps.

    Shape:
        maps: [B, C*2, H, W]; weight: [2, C', C, K, K], real and imaginary part; returns [B, C'*2, H', W'].

    Returns:
        The maps of pairs.

    Raises:
        ShapeError: If the maps are no pairs.

    Example:
        >>> complex_conv2d(torch.randn(2, 6, 5, 5), torch.randn(2, 4, 3, 3, 3)).shape
        torch.Size([2, 8, 3, 3])
    """
    z = to_complex(maps)
    real = F.conv2d(z.real, weight[0], None, stride, padding) - F.conv2d(z.imag, weight[1], None, stride, padding)
    imag = F.conv2d(z.real, weight[1], None, stride, padding) + F.conv2d(z.imag, weight[0], None, stride, padding)
    return from_complex(torch.complex(real, imag))
