"""Efficient-CapsNet of Mazzia, Salvetti and Chiaberge 2021: few capsules, and self-attention in place of iterations.

Convolutions and capsules as in the released code, whose batch normalisation follows the ReLU. For images of another
size than 28x28 the depthwise kernel grows or shrinks with the map, so that there are always 16 primary capsules.

`residual_capsnet` is a network of our own: the same capsules behind a deeper stem of residual convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models._base import ImageModel, ImageShape, conv_size, make_decoder, register_model
from torchcaps.models._residual import ResidualBlock, residual_stem
from torchcaps.nn import CapsLinear, Router, make_router
from torchcaps.ops import squash
from torchcaps.types import Capsules, Trace

# Channels, kernel and stride of the convolutions.
CONVS = ((32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2))
LEAST = 11


class EfficientCapsNet(ImageModel):
    """Four convolutions, a depthwise one that sees the whole map, 16 primary capsules of 8, class capsules of 16.

    Both kinds of capsules are squashed by (1 - exp(-|s|)) s/|s|, the class capsules by their routing. With `residual`
    residual blocks take the place of the four, so many of them at a quarter of the resolution.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        residual: int | None = None,
        routing: Router | str | Mapping[str, Any] = "self_attention",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem, size = _plain(image_shape) if residual is None else _residual(image_shape, residual)
        self.primary = nn.Conv2d(128, 128, size, groups=128)
        # The faster layout for these convolutions.
        for part in (self.stem, self.primary):
            part.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        router = make_router(routing)
        self.head = CapsLinear(16, num_classes, in_dim=8, out_dim=16, routing=router, bias=router.takes_bias)
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """The primary capsules, [B, 16, 8]."""
        self.check_images(images)
        return whole_map_capsules(self.primary, self.stem(images))

    def forward(self, images: Tensor) -> Capsules:
        return self.head(self.features(images))

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))


def whole_map_capsules(conv: nn.Conv2d, maps: Tensor) -> Capsules:
    """Capsules of 8 from maps [B, C, H, W] by a depthwise convolution that sees all of each map: [B, C / 8, 8].

    As a product and a sum, which takes less time than a depthwise convolution with a single place.
    """
    poses = (maps * conv.weight.squeeze(1)).sum(dim=(2, 3))  # [B, C]
    if conv.bias is not None:
        poses = poses + conv.bias
    poses = squash(poses.unflatten(1, (-1, 8)), form="exponential")  # [B, C / 8, 8]
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def _plain(image_shape: ImageShape) -> tuple[nn.Sequential, tuple[int, int]]:
    """The paper's convolutions, and the size of the map that they make of an image."""
    if min(image_shape[1:]) < LEAST:
        raise ShapeError(f"image_shape: expected height and width of at least {LEAST}, got {image_shape}")
    height, width = image_shape[1:]
    stem = nn.Sequential()
    channels = (image_shape[0], *(out for out, _, _ in CONVS))
    for (before, after), (_, kernel, stride) in zip(pairwise(channels), CONVS, strict=True):
        height, width = conv_size(height, kernel, stride), conv_size(width, kernel, stride)
        stem.extend([nn.Conv2d(before, after, kernel, stride), nn.ReLU(), nn.BatchNorm2d(after)])
    return stem, (height, width)


def _residual(image_shape: ImageShape, blocks: int) -> tuple[nn.Sequential, tuple[int, int]]:
    """Residual blocks of 32 channels and, at half the resolution, 64; then 128 at a quarter, and the size of that.

    The last are a convolution and so many blocks.
    """
    if not isinstance(blocks, int) or isinstance(blocks, bool) or blocks < 0:
        raise ConfigError(f"blocks: expected a count of residual blocks, got {blocks!r}")
    stem = residual_stem(image_shape[0], 32, (1, 2))
    stem.extend([nn.Conv2d(64, 128, 3, 2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU()])
    stem.extend(ResidualBlock(128, 128) for _ in range(blocks))
    height, width = ((side + 3) // 4 for side in image_shape[1:])
    return stem, (height, width)


@register_model("efficient_capsnet")
def efficient_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Router | str | Mapping[str, Any] = "self_attention",
    decoder: str | None = "mlp",
) -> EfficientCapsNet:
    """Efficient-CapsNet: 16 primary capsules, self-attention routing; 161,824 parameters without the decoder."""
    return EfficientCapsNet(
        image_shape,
        num_classes,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )


@register_model("residual_capsnet")
def residual_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    blocks: int = 0,
    routing: Router | str | Mapping[str, Any] = "self_attention",
    decoder: str | None = "deconv",
) -> EfficientCapsNet:
    """The capsules of Efficient-CapsNet behind residual convolutions; 251,648 parameters without the decoder.

    `blocks` more of them, of 128 channels at a quarter of the resolution, see further: 295,424 parameters each.
    """
    return EfficientCapsNet(
        image_shape,
        num_classes,
        residual=blocks,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )
