"""Primary matrix capsules: from the channels of a convolution to the first pose matrices and activations."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._counts import check_counts
from torchcaps.types import Capsules


class PrimaryMatrixCaps2d(nn.Module):
    """A convolution that gives, at each position, a pose and an activation per capsule type.

    Poses are linear in the features, activations are their sigmoid: features [B, C, H, W] give a grid of capsules,
    poses [B, H', W', caps, dim], activations [B, H', W', caps] (Hinton et al. 2018, section 4, with a 1x1 kernel and
    4x4 poses, dim = 16).

    >>> import torch
    >>> PrimaryMatrixCaps2d(64, 8)(torch.zeros(1, 64, 14, 14)).poses.shape
    torch.Size([1, 14, 14, 8, 16])
    """

    def __init__(self, in_channels: int, caps: int, dim: int = 16, kernel_size: int = 1, stride: int = 1) -> None:
        super().__init__()
        check_counts(in_channels=in_channels, caps=caps, dim=dim)
        self.poses = nn.Conv2d(in_channels, caps * dim, kernel_size, stride)
        self.activations = nn.Conv2d(in_channels, caps, kernel_size, stride)
        self.dim = dim

    def forward(self, features: Tensor) -> Capsules:
        if features.dim() != 4:
            raise ShapeError(f"features: expected [B, C, H, W], got {tuple(features.shape)} ({features.dim()} axes)")
        poses = self.poses(features).permute(0, 2, 3, 1).unflatten(-1, (-1, self.dim))  # [B, H', W', caps, dim]
        activations = self.activations(features).permute(0, 2, 3, 1).sigmoid()  # [B, H', W', caps]
        return Capsules(poses, activations)
