"""Networks beside Kuramoto's oscillators that keep magnitude and phase, or norm and angle, apart."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageModel, ImageShape, check_depth
from torchcaps.models._create import register_model
from torchcaps.models._layers import ScoreHead, maps_as_capsules
from torchcaps.models.kuramoto_net import POOLED_SIZE
from torchcaps.nn import ComplexConv2d, DecoupledConv2d, ModulusReLU
from torchcaps.ops.decoupled import Angle, Magnitude
from torchcaps.types import Capsules


class Modulus(nn.Module):
    """Magnitudes [B, C, H, W] of complex maps [B, C*2, H, W]."""

    def forward(self, maps: Tensor) -> Tensor:
        return (maps.unflatten(1, (-1, 2)).square().sum(dim=2) + 1e-8).sqrt()


class FromReal(nn.Module):
    """Images [B, C, H, W] as complex maps [B, C*2, H, W] of phase 0."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([images, torch.zeros_like(images)], dim=2).flatten(1, 2)


class SynchronyNet(ImageModel):
    """Blocks of half the resolution each, and scores that are linear in averages over 4x4 regions, as in `KuramotoNet`.

    Args:
        image_shape: Channels, height and width of the training images.
        num_classes: Number of classes.
        stem: Module from images to maps [B, width, H', W'].
        width: Number of channels of the maps.

    Shape:
        images [B, C, H, W] of any height and width; returns poses [B, J, 1] and activations [B, J].

    Example:
        >>> SynchronyNet((1, 8, 8), 3, nn.Conv2d(1, 4, 3, padding=1), 4)(torch.rand(2, 1, 8, 8)).poses.shape
        torch.Size([2, 3, 1])
    """

    default_loss = "cross_entropy"
    any_size = True

    def __init__(self, image_shape: ImageShape, num_classes: int, stem: nn.Module, width: int) -> None:
        super().__init__(image_shape, num_classes)
        self.stem = stem
        self.head = ScoreHead(
            nn.BatchNorm2d(width),
            nn.AdaptiveAvgPool2d(POOLED_SIZE),
            nn.Flatten(),
            nn.Linear(width * POOLED_SIZE**2, num_classes),
        )

    def features(self, images: Tensor) -> Capsules:
        """Return the maps of the last block as a grid of capsules [B, H', W', 1, width]."""
        self.check_images(images)
        return maps_as_capsules(self.stem(images))


@register_model("complex_net")
def complex_net(image_shape: ImageShape, num_classes: int, *, widths: tuple[int, ...] = (8, 16, 32)) -> SynchronyNet:
    """Complex-valued convolutions after Trabelsi et al. 2018: magnitude and phase; scores from magnitudes.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        widths: Width of each layer.

    Returns:
        The model.
    """
    stem = nn.Sequential(FromReal())
    check_depth("widths", len(widths))
    for place, (before, width) in enumerate(pairwise((image_shape[0], *widths))):
        conv = ComplexConv2d(before, width, 3, stride=1 if place == 0 else 2, padding=1)
        stem.extend([conv, ModulusReLU(width)])
    stem.append(Modulus())
    return SynchronyNet(image_shape, num_classes, stem, widths[-1])


@register_model("decoupled_net")
def decoupled_net(
    image_shape: ImageShape,
    num_classes: int,
    *,
    widths: tuple[int, ...] = (16, 32, 64),
    magnitude: Magnitude = "tanh",
    angle: Angle = "cosine",
) -> SynchronyNet:
    """Decoupled convolutions after Liu et al. 2018: a function of the norm times a function of the angle.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        widths: Width of each layer.
        magnitude: Form of the magnitude.
        angle: Form of the angle.

    Returns:
        The model.
    """
    stem = nn.Sequential()
    check_depth("widths", len(widths))
    for place, (before, width) in enumerate(pairwise((image_shape[0], *widths))):
        stride = 1 if place == 0 else 2
        conv = DecoupledConv2d(before, width, 3, stride=stride, padding=1, magnitude=magnitude, angle=angle)
        stem.extend([conv, nn.BatchNorm2d(width), nn.ReLU()])
    return SynchronyNet(image_shape, num_classes, stem, widths[-1])
