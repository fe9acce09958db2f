"""Building blocks that several models share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageShape
from torchcaps.nn import DECODERS
from torchcaps.ops import transforms_active
from torchcaps.types import Capsules


def channels_last(images: Tensor) -> Tensor:
    """Convert images [B, C, H, W] to the channels-last memory format, except under `torch.func`, which has none."""
    return images if transforms_active() else images.to(memory_format=torch.channels_last)


class ConvStem(nn.Sequential):
    """Convolutions that run in the channels-last memory format, which is the faster one on a CPU.

    The input is converted, the weights are not: they stay contiguous, as FSDP requires. torch converts them at every
    call, which takes longer than the convolutions of a single image, so that one image stays as it is.

    Shape:
        images [B, C, H, W]; returns maps [B, C', H', W'].
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        single = input.shape[0] == 1 and not torch.compiler.is_exporting()
        return super().forward(input if single else channels_last(input))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation and a skip connection (He et al. 2016).

    Args:
        before: Number of input channels.
        after: Number of output channels.
        stride: Stride of the first convolution and of the skip connection.

    Shape:
        maps [B, before, H, W]; returns maps [B, after, H', W'].
    """

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

    def forward(self, maps: Tensor) -> Tensor:
        return torch.relu(self.layers(maps) + self.skip(maps))


def residual_layers(channels: int, width: int, blocks: tuple[int, int]) -> list[nn.Module]:
    """Return a convolution and residual blocks of `width`, then of twice as many channels at half the resolution."""
    conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    first = [ResidualBlock(width, width) for _ in range(blocks[0])]
    half = ResidualBlock(width, 2 * width, stride=2)
    second = [ResidualBlock(2 * width, 2 * width) for _ in range(blocks[1] - 1)]
    return [conv, nn.BatchNorm2d(width), nn.ReLU(), *first, half, *second]


class ScoreHead(nn.Sequential):
    """Layers from feature maps to class scores, with the interface of a capsule layer.

    Each class is a capsule of one dimension: its pose is the score, its activation the softmax over the scores.

    Shape:
        a grid of capsules, poses [B, H, W, 1, C]; returns poses [B, J, 1] and activations [B, J].
    """

    def forward(self, input: Capsules) -> Capsules:  # noqa: A002
        maps = input.poses.squeeze(-2).movedim(-1, 1)  # [B, C, H, W]
        scores = super().forward(maps)  # [B, J]
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))


def maps_as_capsules(maps: Tensor) -> Capsules:
    """Return feature maps [B, C, H, W] as a grid of one active capsule per position, poses [B, H, W, 1, C]."""
    poses = maps.movedim(1, -1).unsqueeze(-2)  # [B, H, W, 1, C]
    return Capsules(poses, poses.new_ones(poses.shape[:-1]))


def make_decoder(
    decoder: str | None, num_classes: int, dim: int, image_shape: ImageShape, **options: Any
) -> nn.Module | None:
    """Return a decoder by name, or None if the name is None or 'none'."""
    if decoder is None or decoder == "none":
        return None
    return DECODERS[decoder](num_classes, dim, image_shape, **options)


def conv_size(size: int, kernel: int, stride: int) -> int:
    """Return the output size of a convolution without padding; 0 or less if the kernel does not fit."""
    return (size - kernel) // stride + 1
