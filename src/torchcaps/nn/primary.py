"""Primary capsules: from feature maps to the first poses."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from torchcaps.nn._validation import check_positive
from torchcaps.nn.ranks import CONVS, check_features, check_kernel_fits
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


class PrimaryCaps(nn.Module):
    """Base of the primary capsules of signals, images and volumes: a convolution whose channels are read as poses.

    Args:
        in_channels: Number of channels of the features.
        caps: Number of types of capsules.
        dim: Pose size.
        kernel_size: Size of the convolution's kernel.
        stride: Stride of the convolution.
        squash: Form of the squash; see `ops.squash`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Raises:
        ConfigError: If a size is not positive or `squash` is unknown.
    """

    rank: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        caps: int,
        dim: int,
        kernel_size: int = 9,
        stride: int = 2,
        *,
        squash: SquashForm = "standard",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_squash(squash)
        check_positive(in_channels=in_channels, caps=caps, dim=dim)
        self.caps = caps
        self.dim = dim
        self.squash: SquashForm = squash
        self.conv = CONVS[self.rank](in_channels, caps * dim, kernel_size, stride, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Capsules:
        """Compute the capsules of feature maps.

        Args:
            features: Feature maps.

        Shape:
            features: [B, C, H, W]; returns poses [B, H', W', caps, dim], activations [B, H', W', caps].

        Returns:
            A grid of capsules.

        Raises:
            ShapeError: If the features have another number of axes, or are smaller than the kernel.
        """
        check_features(features, self.rank)
        check_kernel_fits(features, self.conv.kernel_size)
        channels = self.conv(features)  # [B, caps*dim, H', W']
        # One copy, or none after a channels-last convolution: squashing poses whose numbers lie apart costs more.
        poses = channels.movedim(1, -1).contiguous().unflatten(-1, (self.caps, self.dim))  # [B, H', W', caps, dim]
        poses = apply_squash(poses, form=self.squash)  # [B, H', W', caps, dim]
        return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


class PrimaryCaps1d(PrimaryCaps):
    """Primary capsules of signals; the arguments are those of `PrimaryCaps2d`.

    Attributes:
        rank: Number of axes of a signal, 1.

    Shape:
        features: [B, C, T]; returns poses [B, T', caps, dim], activations [B, T', caps].

    Example:
        >>> PrimaryCaps1d(16, 4, 8, kernel_size=5)(torch.zeros(1, 16, 33)).poses.shape
        torch.Size([1, 15, 4, 8])
    """

    rank = 1


class PrimaryCaps2d(PrimaryCaps):
    """Primary capsules: a convolution whose channels are read as poses.

    The `dim` channels of one type at one position are one pose, squash(conv(x)); its length is the activation (Sabour
    et al. 2017, section 4).

    Args:
        in_channels: Number of channels of the features.
        caps: Number of types of capsules.
        dim: Pose size.
        kernel_size: Size of the convolution's kernel.
        stride: Stride of the convolution.
        squash: Form of the squash; see `ops.squash`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        features: [B, C, H, W]; returns poses [B, H', W', caps, dim], activations [B, H', W', caps].

    Raises:
        ConfigError: If a size is not positive or `squash` is unknown.

    Example:
        >>> PrimaryCaps2d(256, 32, 8, kernel_size=9, stride=2)(torch.zeros(1, 256, 20, 20)).flatten().poses.shape
        torch.Size([1, 1152, 8])
    """

    rank = 2


class PrimaryCaps3d(PrimaryCaps):
    """Primary capsules of volumes; the arguments are those of `PrimaryCaps2d`.

    Attributes:
        rank: Number of axes of a volume, 3.

    Shape:
        features: [B, C, D, H, W]; returns poses [B, D', H', W', caps, dim], activations [B, D', H', W', caps].

    Example:
        >>> PrimaryCaps3d(4, 2, 8, kernel_size=3)(torch.zeros(1, 4, 9, 9, 9)).poses.shape
        torch.Size([1, 4, 4, 4, 2, 8])
    """

    rank = 3


PRIMARY_CAPS: dict[int, type[PrimaryCaps]] = {kind.rank: kind for kind in (PrimaryCaps1d, PrimaryCaps2d, PrimaryCaps3d)}
