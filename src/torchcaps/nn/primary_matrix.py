"""Primary matrix capsules: from feature maps to the first pose matrices and activations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchcaps.nn._validation import check_positive
from torchcaps.nn.ranks import CONVS, check_features, check_kernel_fits
from torchcaps.types import Capsules


class PrimaryMatrixCaps(nn.Module):
    """Base of the primary matrix capsules of signals, images and volumes: convolutions for poses and activations.

    Args:
        in_channels: Number of channels of the features.
        caps: Number of types of capsules.
        dim: Pose size; 16 for 4x4 matrices.
        kernel_size: Size of the convolutions' kernel.
        stride: Stride of the convolutions.
        bias: Learn biases.
        activation_offset: Added to the logits of the activations.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Raises:
        ConfigError: If a size is not positive.
    """

    rank: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        caps: int,
        dim: int = 16,
        kernel_size: int = 1,
        stride: int = 1,
        *,
        bias: bool = True,
        activation_offset: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, caps=caps, dim=dim)
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.poses = CONVS[self.rank](in_channels, caps * dim, kernel_size, stride, **options)
        self.activations = CONVS[self.rank](in_channels, caps, kernel_size, stride, **options)
        self.dim = dim
        self.activation_offset = activation_offset

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
        check_kernel_fits(features, self.poses.kernel_size)
        poses = self.poses(features).movedim(1, -1).unflatten(-1, (-1, self.dim))  # [B, H', W', caps, dim]
        logits = self.activations(features).movedim(1, -1)  # [B, H', W', caps]
        activations = (logits + self.activation_offset).sigmoid()  # [B, H', W', caps]
        return Capsules(poses, activations)


class PrimaryMatrixCaps1d(PrimaryMatrixCaps):
    """Primary matrix capsules of signals; the arguments are those of `PrimaryMatrixCaps2d`.

    Attributes:
        rank: Number of axes of a signal, 1.

    Shape:
        features: [B, C, T]; returns poses [B, T', caps, dim], activations [B, T', caps].

    Example:
        >>> PrimaryMatrixCaps1d(64, 8)(torch.zeros(1, 64, 14)).poses.shape
        torch.Size([1, 14, 8, 16])
    """

    rank = 1


class PrimaryMatrixCaps2d(PrimaryMatrixCaps):
    """Primary matrix capsules: convolutions for the pose and the activation of each type at each position.

    Poses are linear in the features, activations are a sigmoid (Hinton et al. 2018, section 4). The authors' released
    program has no biases and computes sigmoid(logit - 1): `bias=False, activation_offset=-1.0`.

    Args:
        in_channels: Number of channels of the features.
        caps: Number of types of capsules.
        dim: Pose size; 16 for 4x4 matrices.
        kernel_size: Size of the convolutions' kernel.
        stride: Stride of the convolutions.
        bias: Learn biases.
        activation_offset: Added to the logits of the activations.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        features: [B, C, H, W]; returns poses [B, H', W', caps, dim], activations [B, H', W', caps].

    Raises:
        ConfigError: If a size is not positive.

    Example:
        >>> PrimaryMatrixCaps2d(64, 8)(torch.zeros(1, 64, 14, 14)).poses.shape
        torch.Size([1, 14, 14, 8, 16])
    """

    rank = 2


class PrimaryMatrixCaps3d(PrimaryMatrixCaps):
    """Primary matrix capsules of volumes; the arguments are those of `PrimaryMatrixCaps2d`.

    Attributes:
        rank: Number of axes of a volume, 3.

    Shape:
        features: [B, C, D, H, W]; returns poses [B, D', H', W', caps, dim], activations [B, D', H', W', caps].

    Example:
        >>> PrimaryMatrixCaps3d(4, 2, kernel_size=3, stride=2)(torch.zeros(1, 4, 9, 9, 9)).poses.shape
        torch.Size([1, 4, 4, 4, 2, 16])
    """

    rank = 3


PRIMARY_MATRIX_CAPS: dict[int, type[PrimaryMatrixCaps]] = {
    kind.rank: kind for kind in (PrimaryMatrixCaps1d, PrimaryMatrixCaps2d, PrimaryMatrixCaps3d)
}
