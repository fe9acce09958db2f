"""Efficient-CapsNet of Mazzia, Salvetti and Chiaberge 2021: few capsules, and self-attention in place of iterations.

Convolutions and capsules follow the released code, where batch normalisation comes after the ReLU. For images of other
sizes than 28x28 the depthwise kernel has the size of the feature map, so that there are always 16 primary capsules.

`residual_capsnet` is not from a paper: it has the same capsules behind a deeper stem of residual convolutions.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageShape, RoutedModel, check_depth, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, ResidualBlock, conv_size, make_decoder, residual_layers
from torchcaps.nn import CapsLinear, RoutingSpec, make_router
from torchcaps.ops import squash
from torchcaps.types import Capsules

# Channels, kernel and stride of the convolutions, and the side of the smallest image that they fit into.
CONVS = ((32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2))
MIN_SIZE = 11


class EfficientCapsNet(RoutedModel):
    """Capsule network of Mazzia et al. 2021: 16 primary capsules of 8 from a depthwise convolution, classes of 16.

    Primary and class capsules are squashed by (1 - exp(-|s|)) s/|s|.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        residual: None for the paper's four convolutions; otherwise a residual stem with this number of blocks at a
            quarter of the resolution.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Module from masked class capsules to images.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Raises:
        ShapeError: If images are smaller than 11x11 (without `residual`).
        ConfigError: If `residual` is not a count.

    Example:
        >>> import torch
        >>> EfficientCapsNet((1, 28, 28), 10)(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        residual: int | None = None,
        routing: RoutingSpec = "self_attention",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem, size = _plain_stem(image_shape) if residual is None else _residual_stem(image_shape, residual)
        self.primary = nn.Conv2d(128, 128, size, groups=128)
        router = make_router(routing)
        self.head = CapsLinear(16, num_classes, in_dim=8, out_dim=16, routing=router, bias=router.takes_bias)
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the primary capsules, [B, 16, 8]."""
        self.check_images(images)
        return whole_map_capsules(self.primary, self.stem(images))


def whole_map_capsules(conv: nn.Conv2d, maps: Tensor) -> Capsules:
    """Return capsules of 8 from a depthwise convolution whose kernel covers the whole map.

    It is computed as a product and a sum, which takes less time than a depthwise convolution with a single position.

    Args:
        conv: The depthwise convolution.
        maps: Feature maps.

    Shape:
        maps [B, C, H, W]; returns poses [B, C / 8, 8] and activations [B, C / 8].

    Returns:
        The capsules.
    """
    poses = (maps * conv.weight.squeeze(1)).sum(dim=(2, 3))  # [B, C]
    if conv.bias is not None:
        poses = poses + conv.bias
    poses = squash(poses.unflatten(1, (-1, 8)), form="exponential")  # [B, C / 8, 8]
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def _plain_stem(image_shape: ImageShape) -> tuple[ConvStem, tuple[int, int]]:
    """Return the paper's convolutions and the size of their output."""
    check_min_size(image_shape, MIN_SIZE)
    height, width = image_shape[1:]
    stem = ConvStem()
    channels = (image_shape[0], *(out for out, _, _ in CONVS))
    for (before, after), (_, kernel, stride) in zip(pairwise(channels), CONVS, strict=True):
        height, width = conv_size(height, kernel, stride), conv_size(width, kernel, stride)
        stem.extend([nn.Conv2d(before, after, kernel, stride), nn.ReLU(), nn.BatchNorm2d(after)])
    return stem, (height, width)


def _residual_stem(image_shape: ImageShape, blocks: int) -> tuple[ConvStem, tuple[int, int]]:
    """Return residual blocks of 32 and 64 channels and `blocks` blocks of 128 channels, and the size of their output.

    The resolution is halved for 64 channels, and again, by a convolution, for 128.
    """
    check_depth("blocks", blocks, 0)
    stem = ConvStem(*residual_layers(image_shape[0], 32, (1, 2)))
    stem.extend([nn.Conv2d(64, 128, 3, 2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU()])
    stem.extend(ResidualBlock(128, 128) for _ in range(blocks))
    height, width = ((side + 3) // 4 for side in image_shape[1:])
    return stem, (height, width)


@register_model("efficient_capsnet")
def efficient_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec = "self_attention",
    decoder: str | None = "mlp",
) -> EfficientCapsNet:
    """Efficient-CapsNet: 16 primary capsules, self-attention routing; 161,824 parameters without the decoder.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
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
    routing: RoutingSpec = "self_attention",
    decoder: str | None = "deconv",
) -> EfficientCapsNet:
    """The capsules of Efficient-CapsNet behind residual convolutions; 251,648 parameters without the decoder.

    `blocks` adds residual blocks of 128 channels at a quarter of the resolution, 295,424 parameters each.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        blocks: Number of further residual blocks.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    return EfficientCapsNet(
        image_shape,
        num_classes,
        residual=blocks,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )
