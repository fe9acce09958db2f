"""A deep capsule network after DeepCaps (Rajasegaran et al. 2019): cells of capsule layers with skip connections.

Sizes are those of the paper. Three details differ. Poses are batch-normalised before the squash; without this they
fade from layer to layer at the start. In the last cell the parents of each position compete for a child by themselves,
where the paper lets all positions compete. The decoder is the deconvolution decoder of the other models.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageShape, RoutedModel
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, channels_last, make_decoder
from torchcaps.nn import CapsLinear, Router, RoutingSpec, make_router, mask_capsules
from torchcaps.ops import squash
from torchcaps.types import Capsules, Trace


def _as_capsules(poses: Tensor) -> Capsules:
    # The sum of a layer and its skip connection may be longer than one.
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1).clamp(max=1))


class CellConv(nn.Module):
    """3x3 convolution from all capsules of a neighbourhood to new ones: squash(batch_norm(conv(poses))).

    Args:
        in_caps: Number of capsule types of the input.
        in_dim: Pose size of the input.
        caps: Number of capsule types of the output.
        dim: Pose size of the output.
        stride: Stride of the convolution.

    Shape:
        poses [B, H, W, in_caps, in_dim]; returns [B, H', W', caps, dim], with H' = ceil(H / stride).
    """

    def __init__(self, in_caps: int, in_dim: int, caps: int, dim: int, stride: int = 1) -> None:
        super().__init__()
        self.shape = (caps, dim)
        self.in_caps = in_caps
        self.conv = nn.Conv2d(in_caps * in_dim, caps * dim, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(caps * dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weight so that input capsules of length near one give output capsules of that length."""
        nn.init.normal_(self.conv.weight, std=1 / math.sqrt(9 * self.in_caps))

    def forward(self, poses: Tensor) -> Tensor:
        channels = poses.flatten(3).permute(0, 3, 1, 2)  # [B, I*P, H, W]
        channels = self.norm(self.conv(channels)).permute(0, 2, 3, 1)  # [B, H', W', J*D]
        return squash(channels.contiguous().unflatten(-1, self.shape))  # [B, H', W', J, D]


class RoutedCellConv(nn.Module):
    """3x3 convolution from each capsule type to votes for new ones, routed at every position.

    All types share the kernel, as in the paper's 3-D convolution.

    Args:
        in_caps: Number of capsule types of the input.
        caps: Number of capsule types of the output.
        dims: Pose size of the input and of the output.
        routing: Router.

    Shape:
        poses [B, H, W, in_caps, P]; returns [B, H, W, caps, D].
    """

    def __init__(self, in_caps: int, caps: int, dims: tuple[int, int], routing: Router) -> None:
        super().__init__()
        self.caps = caps
        self.conv = nn.Conv2d(dims[0], caps * dims[1], 3, padding=1, bias=False)
        self.routing = routing
        routing.prepare(in_caps, caps, *dims)

    def forward(self, poses: Tensor) -> Tensor:
        parents = self.routing(*self._votes(poses)).poses  # [B*H*W, J, D]
        return parents.unflatten(0, poses.shape[:3])  # [B, H, W, J, D]

    def trace(self, poses: Tensor, **options: Any) -> Trace:
        """Route and record every iteration; each position counts as a sample, [R, B*H*W, ...]."""
        return self.routing.trace(*self._votes(poses), **options)

    def _votes(self, poses: Tensor) -> tuple[Tensor, Capsules]:
        """Return the votes [B*H*W, I, J, D] and their children [B*H*W, I, P]."""
        batch, _, _, types, _ = poses.shape
        maps = poses.permute(0, 3, 4, 1, 2).flatten(0, 1)  # [B*I, P, H, W]
        maps = channels_last(maps)
        votes = self.conv(maps).unflatten(0, (batch, types)).unflatten(2, (self.caps, -1))  # [B, I, J, D, H, W]
        votes = votes.permute(0, 4, 5, 1, 2, 3).flatten(0, 2)  # [B*H*W, I, J, D]
        return votes, _as_capsules(poses.flatten(0, 2))


class CapsCell(nn.Module):
    """Three capsule layers, the first of stride 2, and a skip connection around the other two.

    Args:
        in_caps: Number of capsule types of the input.
        in_dim: Pose size of the input.
        caps: Number of capsule types of the output.
        dim: Pose size of the output.
        routing: Router of the skip connection. Default: the skip connection is a convolution.

    Shape:
        poses [B, H, W, in_caps, in_dim]; returns [B, ceil(H / 2), ceil(W / 2), caps, dim].
    """

    def __init__(self, in_caps: int, in_dim: int, caps: int, dim: int, routing: Router | None = None) -> None:
        super().__init__()
        self.first = CellConv(in_caps, in_dim, caps, dim, stride=2)
        self.rest = nn.Sequential(CellConv(caps, dim, caps, dim), CellConv(caps, dim, caps, dim))
        if routing is None:
            self.skip = CellConv(caps, dim, caps, dim)
        else:
            self.skip = RoutedCellConv(caps, caps, (dim, dim), routing)

    def forward(self, poses: Tensor) -> Tensor:
        first = self.first(poses)  # [B, H', W', J, D]
        return self.rest(first) + self.skip(first)  # [B, H', W', J, D]


class DeepCapsNet(RoutedModel):
    """Deep capsule network after DeepCaps: a convolution, four cells, class capsules over the last two cells.

    Poses have 4 dimensions in the first cell and 8 in the others. The skip connection of the last cell is routed. The
    decoder is made for one class: its input is the pose of the class, without the label.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        channels: Channels of the convolution.
        caps: Capsule types of every cell.
        class_dim: Pose size of the class capsules.
        routing: Router, its name, or a mapping with its name and options. The cell and the class layer get a copy each.
        decoder: Module from the pose of one class to an image.

    Shape:
        images [B, C, H, W]; returns poses [B, J, class_dim] and activations [B, J].

    Example:
        >>> import torch
        >>> model = DeepCapsNet((1, 16, 16), 3, channels=8, caps=4, class_dim=16)
        >>> model(torch.rand(2, 1, 16, 16)).poses.shape
        torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        channels: int = 128,
        caps: int = 32,
        class_dim: int = 32,
        routing: RoutingSpec = "dynamic",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        router = make_router(routing)
        conv = nn.Conv2d(image_shape[0], channels, 3, padding=1, bias=False)
        self.stem = ConvStem(conv, nn.BatchNorm2d(channels), nn.ReLU())
        self.lower = nn.Sequential(
            CapsCell(channels, 1, caps, 4), CapsCell(caps, 4, caps, 8), CapsCell(caps, 8, caps, 8)
        )
        self.upper = CapsCell(caps, 8, caps, 8, copy.deepcopy(router))
        children = sum(math.prod(math.ceil(side / 2**cells) for side in image_shape[1:]) for cells in (3, 4)) * caps
        self.head = CapsLinear(
            children, num_classes, in_dim=8, out_dim=class_dim, routing=router, bias=router.takes_bias
        )
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules of the last two cells as one set, [B, I, 8]."""
        self.check_images(images)
        maps = self.stem(images).permute(0, 2, 3, 1).unsqueeze(-1)  # [B, H, W, channels, 1]
        lower = self.lower(maps)  # [B, H/8, W/8, caps, 8]
        upper = self.upper(lower)  # [B, H/16, W/16, caps, 8]
        return _as_capsules(torch.cat([lower.flatten(1, 3), upper.flatten(1, 3)], dim=1))

    def decode(self, capsules: Capsules, labels: Tensor | None = None) -> Tensor:
        if self.decoder is None:
            return super().decode(capsules, labels)
        return self.decoder(mask_capsules(capsules, labels).sum(dim=1, keepdim=True))


@register_model("deep_capsnet")
def deep_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec = "dynamic",
    decoder: str | None = "deconv",
) -> DeepCapsNet:
    """DeepCaps: four skip-connected cells of 32 capsule types, the last one routed; class capsules of 32.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    made = make_decoder(decoder, 1, 32, image_shape)
    return DeepCapsNet(image_shape, num_classes, routing=routing, decoder=made)


@register_model("deep_capsnet_small")
def deep_capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec = "dynamic",
    decoder: str | None = "deconv",
) -> DeepCapsNet:
    """A deep capsule network for two cores: four skip-connected cells of 8 capsule types; class capsules of 16.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    made = make_decoder(decoder, 1, 16, image_shape)
    return DeepCapsNet(image_shape, num_classes, channels=32, caps=8, class_dim=16, routing=routing, decoder=made)
