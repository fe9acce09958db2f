"""Residual convolutions, which several networks look at an image with."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, added to what they were given (He et al. 2016)."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.skip = nn.Sequential()
        if before != after or stride != 1:
            self.skip.extend([nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)])

    def forward(self, features: Tensor) -> Tensor:
        return torch.relu(self.layers(features) + self.skip(features))


def residual_stem(channels: int, width: int, blocks: tuple[int, int]) -> nn.Sequential:
    """A convolution and so many residual blocks of `width` channels, then of twice as many at half the resolution."""
    stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    stem.extend(ResidualBlock(width, width) for _ in range(blocks[0]))
    stem.append(ResidualBlock(width, 2 * width, stride=2))
    stem.extend(ResidualBlock(2 * width, 2 * width) for _ in range(blocks[1] - 1))
    return stem
