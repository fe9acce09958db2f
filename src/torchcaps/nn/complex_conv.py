"""Layers of complex numbers: a convolution, and an activation that keeps the phase."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.nn._validation import check_positive


class ComplexConv2d(nn.Module):
    """A convolution of complex maps (Trabelsi et al. 2018); see `ops.complex_conv2d`.

    It has no offset: turning the phases of all inputs by one angle turns those of all outputs by the same angle. One
    real convolution computes it, with the kernel [[a, -b], [b, a]] for a + i b.

    Args:
        in_channels: Number of complex input channels.
        out_channels: Number of complex output channels.
        kernel_size: Size of the kernel.
        stride: Stride of the convolution.
        padding: Zeros around the maps.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        maps: [B, in_channels*2, H, W], pairs of real and imaginary part; returns [B, out_channels*2, H', W'].

    Raises:
        ConfigError: If a size is not positive.

    Example:
        >>> ComplexConv2d(3, 8, 3, padding=1)(torch.randn(2, 6, 14, 14)).shape
        torch.Size([2, 16, 14, 14])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride)
        self.stride = stride
        self.padding = padding
        shape = (2, out_channels, in_channels, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))  # [2, C', C, K, K]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw phases evenly and magnitudes from Rayleigh's distribution, so that variances are kept (He et al.)."""
        fan_in = math.prod(self.weight.shape[2:])
        # Real and imaginary parts that are normal have such magnitudes and phases.
        nn.init.normal_(self.weight, std=1 / math.sqrt(fan_in))

    def forward(self, maps: Tensor) -> Tensor:
        """Convolve the maps.

        Args:
            maps: Maps of pairs.

        Shape:
            maps: [B, in_channels*2, H, W]; returns [B, out_channels*2, H', W'].

        Returns:
            Maps of pairs.

        Raises:
            ShapeError: If the maps do not fit.
        """
        channels = 2 * self.weight.shape[2]
        if maps.dim() != 4 or maps.shape[1] != channels:
            raise ShapeError(f"maps: expected [B, {channels}, H, W], got {tuple(maps.shape)}")
        real, imag = self.weight
        rows = torch.stack([torch.stack([real, -imag], 2), torch.stack([imag, real], 2)], 1)  # [C', 2, C, 2, K, K]
        return F.conv2d(maps, rows.flatten(0, 1).flatten(1, 2), None, self.stride, self.padding)

    def extra_repr(self) -> str:
        _, after, before, size, _ = self.weight.shape
        return f"{before}, {after}, kernel_size={size}, stride={self.stride}, padding={self.padding}"


class ModulusReLU(nn.Module):
    """The activation of complex maps that changes magnitudes and keeps phases: relu(|z| + b) z / |z|.

    Magnitudes are divided by their root mean square in a sample first, so that the offset has one scale everywhere
    (modReLU of Arjovsky et al. 2016, with a normalisation that keeps phases).

    Args:
        channels: Number of complex channels.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        maps: [B, channels*2, H, W]; returns the same shape.

    Example:
        >>> ModulusReLU(3)(torch.randn(2, 6, 5, 5)).shape
        torch.Size([2, 6, 5, 5])
    """

    def __init__(
        self, channels: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_positive(channels=channels)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.gain = nn.Parameter(torch.empty(channels, **factory))
        self.offset = nn.Parameter(torch.empty(channels, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the gain to 1 and the offset to -0.5: half of the mean magnitude is cut off."""
        nn.init.ones_(self.gain)
        nn.init.constant_(self.offset, -0.5)

    def forward(self, maps: Tensor) -> Tensor:
        """Scale each complex number by what is left of its magnitude; its phase stays.

        Args:
            maps: Maps with the real and the imaginary part of each channel side by side.

        Shape:
            maps: [B, 2 C, H, W]; returns the same shape.

        Returns:
            The maps.
        """
        pairs = maps.unflatten(1, (-1, 2))  # [B, C, 2, H, W]
        squares = pairs.square().sum(dim=2, keepdim=True)  # [B, C, 1, H, W]
        scale = (squares.mean(dim=(1, 3, 4), keepdim=True) + 1e-8).rsqrt()  # [B, 1, 1, 1, 1]
        modulus = (squares + 1e-8).sqrt()  # [B, C, 1, H, W]
        gain, offset = self.gain[:, None, None, None], self.offset[:, None, None, None]
        return (pairs / modulus * (gain * modulus * scale + offset).relu()).flatten(1, 2)
