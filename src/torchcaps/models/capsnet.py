"""The capsule network of Sabour, Frosst and Hinton 2017, 'Dynamic routing between capsules'."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.models._base import ImageModel, ImageShape, conv_size, make_decoder, register_model
from torchcaps.nn import CapsLinear, PrimaryCaps2d, PrimaryMatrixCaps2d, Router, make_router
from torchcaps.types import Capsules, Trace

Conv = tuple[int, int, int]


class CapsNet(ImageModel):
    """Convolutions, primary capsules, routing to one capsule per class, and a decoder.

    `stem` lists the convolutions as (channels, kernel, stride), `primary` is (capsule types, kernel, stride); the
    number of primary capsules follows from `image_shape`. A routing that looks at the activations of children gets
    primary capsules that have them apart from their poses, as matrix capsules do, and poses of deviation one: lengths,
    near zero at first, would tell it that nobody is there. Its loss is the spread loss: no level is asked for.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        stem: tuple[Conv, ...],
        primary: Conv,
        class_dim: int = 16,
        routing: Router | str | Mapping[str, Any] = "dynamic",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        channels = [image_shape[0], *(out for out, _, _ in stem)]
        self.stem = nn.Sequential()
        for (before, after), (_, kernel, stride) in zip(pairwise(channels), stem, strict=True):
            self.stem.extend([nn.Conv2d(before, after, kernel, stride), nn.ReLU(inplace=True)])
        types, kernel, stride = primary
        router = make_router(routing)
        kind: type[PrimaryCaps2d | PrimaryMatrixCaps2d] = PrimaryCaps2d
        if not router.by_length:
            kind, self.loss = PrimaryMatrixCaps2d, "spread"
        self.primary = kind(channels[-1], types, dim=8, kernel_size=kernel, stride=stride)
        # The faster layout for these convolutions; primary capsules then lie as the next layer reads them.
        for part in (self.stem, self.primary):
            part.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        height, width = self._grid((*stem, primary))
        children = height * width * types
        self.head = CapsLinear(
            children, num_classes, in_dim=8, out_dim=class_dim, routing=router, bias=router.takes_bias
        )
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """The primary capsules, a grid [B, H, W, I, 8]."""
        self.check_images(images)
        poses, activations = self.primary(self.stem(images))
        if isinstance(self.primary, PrimaryMatrixCaps2d):
            poses = math.sqrt(poses.shape[-1]) * F.normalize(poses, dim=-1)  # [B, H, W, I, 8]
        return Capsules(poses, activations)

    def forward(self, images: Tensor) -> Capsules:
        return self.head(self.features(images))

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))

    def _grid(self, convs: tuple[Conv, ...]) -> tuple[int, int]:
        size = list(self.image_shape[1:])
        least = 1
        for _, kernel, stride in reversed(convs):
            least = (least - 1) * stride + kernel
        for _, kernel, stride in convs:
            size = [conv_size(side, kernel, stride) for side in size]
        if min(size) < 1:
            raise ShapeError(f"image_shape: expected height and width of at least {least}, got {self.image_shape}")
        return size[0], size[1]


@register_model("capsnet")
def capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Router | str | Mapping[str, Any] = "dynamic",
    decoder: str | None = "mlp",
) -> CapsNet:
    """The paper's MNIST network: conv 9x9 with 256 channels, 32 primary types of 8, class capsules of 16."""
    return CapsNet(
        image_shape,
        num_classes,
        stem=((256, 9, 1),),
        primary=(32, 9, 2),
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )


@register_model("capsnet_small")
def capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Router | str | Mapping[str, Any] = "dynamic",
    decoder: str | None = "deconv",
) -> CapsNet:
    """A capsule network for two cores: two small convolutions, 16 primary types of 8, class capsules of 16."""
    return CapsNet(
        image_shape,
        num_classes,
        stem=((32, 5, 1), (64, 5, 2)),
        primary=(16, 5, 2),
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )
