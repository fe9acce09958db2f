"""Standardising images, one by one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """Give every image mean 0 and deviation 1 over all its pixels and channels.

    images [B, C, H, W] stay [B, C, H, W]. The deviation is never taken smaller than 1 / sqrt(C*H*W), so that an even
    image becomes zero and not noise.

    >>> Standardise()(torch.tensor([[[[0.0, 2.0, 0.0, 2.0]]]])).tolist()
    [[[[-1.0, 1.0, -1.0, 1.0]]]]
    """

    def forward(self, images: Tensor) -> Tensor:
        variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)  # [B, 1, 1, 1]
        return (images - mean) / variance.clamp_min(1 / math.prod(images.shape[1:])).sqrt()  # [B, C, H, W]
