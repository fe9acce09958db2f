"""A synchronisation network: layers of Kuramoto oscillators whose phases align for features that belong together.

After the artificial Kuramoto oscillatory neurons of Miyato et al. 2025. It is smaller; its oscillators start in a phase
that each channel learns, not at random; and they have two dimensions, so that the state of each is one phase.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageModel, ImageShape
from torchcaps.models._create import register_model
from torchcaps.models._layers import ScoreHead, maps_as_capsules
from torchcaps.nn import KuramotoConv2d, KuramotoReadout
from torchcaps.types import Capsules

POOLED_SIZE = 4


class KuramotoBlock(nn.Module):
    """A convolution that computes the stimulus, oscillators that synchronise, and a readout of their lengths.

    Args:
        before: Number of input channels.
        width: Number of oscillators per position, and of output channels.
        dim: Dimensions of an oscillator.
        kernel_size: Size of the neighbourhood that couples oscillators.
        stride: Stride of the convolution.
        iters: Number of iterations.
        step: Step size of an iteration.

    Shape:
        maps [B, before, H, W]; returns maps [B, width, H', W'].
    """

    def __init__(
        self, before: int, width: int, dim: int, kernel_size: int, stride: int, *, iters: int, step: float
    ) -> None:
        super().__init__()
        conv = nn.Conv2d(before, width * dim, 3, stride, padding=1, bias=False)
        self.stimulus = nn.Sequential(conv, nn.BatchNorm2d(width * dim))
        self.oscillators = KuramotoConv2d(width, dim, kernel_size, iters=iters, step=step)
        self.readout = KuramotoReadout(width, dim, width)

    def forward(self, maps: Tensor) -> Tensor:
        return self.readout(self.oscillators(self.stimulus(maps)))


class KuramotoNet(ImageModel):
    """Network of Kuramoto oscillators after Miyato et al. 2025, with one score per class.

    Each block of oscillators has half the resolution of the one before. The scores are linear in the averages of the
    last maps over 4x4 regions of the image, so that images may have any size. As in a CNN, each class is a capsule of
    one dimension: its pose is the score, its activation the softmax over the scores.

    Args:
        image_shape: Channels, height and width of the training images.
        num_classes: Number of classes.
        widths: Number of oscillators per position of each block.
        dim: Dimensions of an oscillator.
        kernel_size: Size of the neighbourhood that couples oscillators.
        iters: Number of iterations.
        step: Step size of an iteration.

    Shape:
        images [B, C, H, W] of any height and width; returns poses [B, J, 1] and activations [B, J].

    Example:
        >>> import torch
        >>> model = KuramotoNet((1, 28, 28), 10, widths=(4, 8))
        >>> model(torch.rand(2, 1, 28, 28)).activations.shape
        torch.Size([2, 10])
    """

    default_loss = "cross_entropy"
    any_size = True

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        widths: tuple[int, ...] = (8, 16, 32),
        dim: int = 2,
        kernel_size: int = 3,
        iters: int = 3,
        step: float = 1.0,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem = nn.Sequential()
        for place, (before, width) in enumerate(pairwise((image_shape[0], *widths))):
            stride = 1 if place == 0 else 2
            self.stem.append(KuramotoBlock(before, width, dim, kernel_size, stride, iters=iters, step=step))
        # The readout lengths are all positive. Removing their mean speeds up training considerably.
        self.head = ScoreHead(
            nn.BatchNorm2d(widths[-1]),
            nn.AdaptiveAvgPool2d(POOLED_SIZE),
            nn.Flatten(),
            nn.Linear(widths[-1] * POOLED_SIZE**2, num_classes),
        )

    def features(self, images: Tensor) -> Capsules:
        """Return the maps of the last block as a grid of capsules [B, H', W', 1, width]."""
        self.check_images(images)
        return maps_as_capsules(self.stem(images))

    def phases(self, images: Tensor) -> Tensor:
        """Return the phases of the first block's oscillators at the start and after each iteration.

        With more than two dimensions, a phase is the angle in the plane of the first two.

        Args:
            images: Batch of images.

        Shape:
            images [B, C, H, W]; returns [R + 1, B, width, H, W].

        Returns:
            The phases, in radians.
        """
        self.check_images(images)
        block = cast(KuramotoBlock, cast(nn.Sequential, self.stem)[0])
        layer = block.oscillators
        states = torch.stack(layer.states(block.stimulus(images)))  # [R + 1, B, C*N, H, W]
        states = states.unflatten(2, (layer.channels, layer.dim))
        return torch.atan2(states[:, :, :, 1], states[:, :, :, 0])  # [R + 1, B, C, H, W]


@register_model("kuramoto_net")
def kuramoto_net(
    image_shape: ImageShape, num_classes: int, *, dim: int = 2, kernel_size: int = 3, iters: int = 3, step: float = 1.0
) -> KuramotoNet:
    """A synchronisation network: three blocks of 8, 16 and 32 Kuramoto oscillators; accepts images of any size.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        dim: Dimensions of an oscillator.
        kernel_size: Size of the neighbourhood that couples oscillators.
        iters: Number of iterations.
        step: Step size of an iteration.

    Returns:
        The model.
    """
    return KuramotoNet(image_shape, num_classes, dim=dim, kernel_size=kernel_size, iters=iters, step=step)
