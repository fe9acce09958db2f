"""Primary capsules: from the channels of a convolution to the first poses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._counts import check_counts
from torchcaps.ops import squash
from torchcaps.types import Capsules


class PrimaryCaps2d(nn.Module):
    """A convolution whose channels, at each position, are read as capsules.

    The `dim` channels of one type at one position make one pose: squash(conv(x)). features [B, C, H, W] give a grid of
    capsules, poses [B, H', W', caps, dim], activations [B, H', W', caps] (Sabour et al. 2017, section 4).

    >>> PrimaryCaps2d(256, 32, 8, kernel_size=9, stride=2)(torch.zeros(1, 256, 20, 20)).flatten().poses.shape
    torch.Size([1, 1152, 8])
    """

    def __init__(self, in_channels: int, caps: int, dim: int, kernel_size: int = 9, stride: int = 2) -> None:
        super().__init__()
        check_counts(in_channels=in_channels, caps=caps, dim=dim)
        self.caps = caps
        self.dim = dim
        self.conv = nn.Conv2d(in_channels, caps * dim, kernel_size, stride)

    def forward(self, features: Tensor) -> Capsules:
        if features.dim() != 4:
            raise ShapeError(f"features: expected [B, C, H, W], got {tuple(features.shape)} ({features.dim()} axes)")
        channels = self.conv(features)  # [B, caps*dim, H', W']
        # One copy, or none after a channels-last convolution: squashing poses whose numbers lie apart costs more.
        poses = channels.permute(0, 2, 3, 1).contiguous().unflatten(-1, (self.caps, self.dim))  # [B, H', W', caps, dim]
        poses = squash(poses)  # [B, H', W', caps, dim]
        return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
