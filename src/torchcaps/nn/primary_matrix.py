"""Primary matrix capsules: from feature maps to the first pose matrices and activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._validation import check_positive
from torchcaps.types import Capsules


class PrimaryMatrixCaps2d(nn.Module):
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
        >>> import torch
        >>> PrimaryMatrixCaps2d(64, 8)(torch.zeros(1, 64, 14, 14)).poses.shape
        torch.Size([1, 14, 14, 8, 16])
    """

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
        self.poses = nn.Conv2d(in_channels, caps * dim, kernel_size, stride, **options)
        self.activations = nn.Conv2d(in_channels, caps, kernel_size, stride, **options)
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
            ShapeError: If the features have another number of axes.
        """
        if features.dim() != 4:
            raise ShapeError(f"features: expected [B, C, H, W], got {tuple(features.shape)} ({features.dim()} axes)")
        poses = self.poses(features).permute(0, 2, 3, 1).unflatten(-1, (-1, self.dim))  # [B, H', W', caps, dim]
        logits = self.activations(features).permute(0, 2, 3, 1)  # [B, H', W', caps]
        activations = (logits + self.activation_offset).sigmoid()  # [B, H', W', caps]
        return Capsules(poses, activations)
