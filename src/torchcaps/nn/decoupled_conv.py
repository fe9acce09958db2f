"""Decoupled convolution: norms and angle of an inner product get functions of their own."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.nn._validation import check_positive
from torchcaps.ops.decoupled import Angle, Magnitude, check_decoupled, of_cosine, of_norm


class DecoupledConv2d(nn.Module):
    """A convolution h(|x|) g(angle) in place of |w| |x| cos(angle) (Liu et al. 2018); see `ops.decoupled_conv2d`.

    The norm of a patch says how much of a feature there is, the angle which one. With `linear` and `cosine` it is a
    convolution with kernels of length 1. Norms of patches come from a convolution of the squares, so that no patch is
    stored.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Size of the kernel.
        stride: Stride of the convolution.
        padding: Zeros around the maps.
        magnitude: h: `linear`, `sphere`, `ball` or `tanh`; see `ops.decoupled.of_norm`.
        angle: g: `cosine`, `linear` or `square_cosine`; see `ops.decoupled.of_cosine`.
        radius: Norm at which h saturates. Default: the root of the number of inputs of a patch.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        maps: [B, in_channels, H, W]; returns [B, out_channels, H', W'].

    Raises:
        ConfigError: If a size is not positive or an option is unknown or out of range.

    Example:
        >>> DecoupledConv2d(3, 8, 3, padding=1)(torch.randn(2, 3, 14, 14)).shape
        torch.Size([2, 8, 14, 14])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        magnitude: Magnitude = "tanh",
        angle: Angle = "cosine",
        radius: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, stride=stride)
        self.radius = math.sqrt(in_channels * kernel_size**2) if radius is None else radius
        check_decoupled(magnitude, angle, self.radius)
        self.stride = stride
        self.padding = padding
        self.magnitude: Magnitude = magnitude
        self.angle: Angle = angle
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))  # [C', C, K, K]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw kernels of random direction; their length has no effect."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(math.prod(self.weight.shape[1:])))

    def forward(self, maps: Tensor) -> Tensor:
        """Compute the maps.

        Args:
            maps: Feature maps.

        Shape:
            maps: [B, in_channels, H, W]; returns [B, out_channels, H', W'].

        Returns:
            The maps.
        """
        kernels = F.normalize(self.weight.flatten(1), dim=1).view_as(self.weight)  # [C', C, K, K]
        inner = F.conv2d(maps, kernels, None, self.stride, self.padding)  # [B, C', H', W']
        ones = torch.ones_like(self.weight[:1])  # [1, C, K, K]
        squares = F.conv2d(maps.square(), ones, None, self.stride, self.padding)  # [B, 1, H', W']
        # Above zero, so that gradients are finite where a patch is empty.
        norm = (squares.relu() + 1e-12).sqrt()  # [B, 1, H', W']
        return of_norm(norm, self.magnitude, self.radius) * of_cosine(inner / norm, self.angle)

    def extra_repr(self) -> str:
        after, before, size, _ = self.weight.shape
        return f"{before}, {after}, kernel_size={size}, magnitude={self.magnitude!r}, angle={self.angle!r}"
