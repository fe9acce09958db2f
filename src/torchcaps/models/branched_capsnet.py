"""A network of our own: two small Efficient-CapsNets on common first convolutions, which answer as one.

Each branch gives every class a part of its capsule. The length of the whole is the root of the mean square of the
lengths of its parts, which never exceed one: it comes near one only where all branches see the class, and near zero
only where none does. So the margin loss of the whole teaches every branch to be right by itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.models._base import ImageModel, ImageShape, conv_size, make_decoder, register_model
from torchcaps.models._residual import ResidualBlock
from torchcaps.models.efficient_capsnet import whole_map_capsules
from torchcaps.nn import CapsLinear, Router, make_router
from torchcaps.nn._counts import check_counts
from torchcaps.types import Capsules, Trace

# Channels and kernel of the first convolution, which has no padding: what lies at the edge says little.
WIDTH, KERNEL = 32, 5
# Channels of a branch at half the resolution; it has twice as many at a quarter, which are its primary capsules of 8.
CHANNELS = 48
# How many dimensions a branch adds to the pose of a class.
DIM = 8


class Branch(nn.Module):
    """Residual convolutions at half the resolution, one at a quarter, 12 primary capsules of 8, class capsules of 8.

    maps [B, 32, H, W] give this branch's part of the class capsules, [B, J, 8].
    """

    def __init__(self, size: tuple[int, int], num_classes: int, routing: Router) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ResidualBlock(WIDTH, CHANNELS, stride=2),
            ResidualBlock(CHANNELS, CHANNELS),
            nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(2 * CHANNELS),
            nn.ReLU(),
        )
        self.primary = nn.Conv2d(2 * CHANNELS, 2 * CHANNELS, size, groups=2 * CHANNELS)
        self.head = CapsLinear(
            CHANNELS // 4, num_classes, in_dim=8, out_dim=DIM, routing=routing, bias=routing.takes_bias
        )

    def features(self, maps: Tensor) -> Capsules:
        """The primary capsules, [B, 12, 8]."""
        return whole_map_capsules(self.primary, self.stem(maps))

    def forward(self, maps: Tensor) -> Capsules:
        return self.head(self.features(maps))

    def trace(self, maps: Tensor) -> Trace:
        """The routing of this branch with every iteration kept."""
        return self.head.trace(self.features(maps))


class BranchedCapsNet(ImageModel):
    """A convolution and a residual block of 32 channels, and branches whose class capsules are parts of the whole.

    The pose of a class is that of all N branches side by side, divided by the root of N: [B, J, 8 N].
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        branches: int = 2,
        routing: Router | str | Mapping[str, Any] = "self_attention",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        if min(image_shape[1:]) < KERNEL:
            raise ShapeError(f"image_shape: expected height and width of at least {KERNEL}, got {image_shape}")
        self.trunk = nn.Sequential(
            nn.Conv2d(image_shape[0], WIDTH, KERNEL, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            ResidualBlock(WIDTH, WIDTH),
        )
        height, width = (math.ceil(conv_size(side, KERNEL, 1) / 4) for side in image_shape[1:])
        router = make_router(routing)
        self.branches = nn.ModuleList(
            Branch((height, width), num_classes, copy.deepcopy(router)) for _ in range(branches)
        )
        # The faster layout for these convolutions.
        for part in (self.trunk, self.branches):
            part.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.decoder = decoder

    def forward(self, images: Tensor) -> Capsules:
        self.check_images(images)
        maps = self.trunk(images)  # [B, 32, H, W]
        return _whole([branch(maps) for branch in self.branches])

    def trace(self, images: Tensor) -> Trace:
        """The routing of all branches side by side; a child votes on the part of a pose that is its branch's."""
        self.check_images(images)
        maps = self.trunk(images)  # [B, 32, H, W]
        return _side_by_side([branch.trace(maps) for branch in self.branches])  # pyright: ignore[reportCallIssue]


def _whole(parts: Sequence[Capsules | Trace]) -> Capsules:
    share = 1 / math.sqrt(len(parts))
    poses = share * torch.cat([part.poses for part in parts], dim=-1)  # [..., J, 8 N]
    # The length of that pose, where the activations of the branches are lengths.
    activations = share * torch.linalg.vector_norm(torch.stack([part.activations for part in parts]), dim=0)
    return Capsules(poses, activations)


def _side_by_side(traces: list[Trace]) -> Trace:
    # Zeros before and behind, where the parts of the other branches are.
    room = [(DIM * number, DIM * (len(traces) - 1 - number)) for number in range(len(traces))]
    votes = torch.cat([F.pad(trace.votes, sides) for trace, sides in zip(traces, room, strict=True)], dim=1)
    poses, activations = _whole(traces)  # [R, B, J, N D], [R, B, J]
    return Trace(
        algorithm=traces[0].algorithm,
        votes=votes / math.sqrt(len(traces)),  # [B, N I, J, N D]
        logits=torch.cat([trace.logits for trace in traces], dim=2),  # [R, B, N I, J]
        coupling=torch.cat([trace.coupling for trace in traces], dim=2),  # [R, B, N I, J]
        poses=poses,
        activations=activations,
    )


@register_model("branched_capsnet")
def branched_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    branches: int = 2,
    routing: Router | str | Mapping[str, Any] = "self_attention",
    decoder: str | None = "deconv",
) -> BranchedCapsNet:
    """Two branches of 12 primary capsules each that answer as one; 281,552 parameters without the decoder.

    `branches` may be another number of them: with one it is a plain network, to compare with.
    """
    check_counts(branches=branches)
    return BranchedCapsNet(
        image_shape,
        num_classes,
        branches=branches,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, DIM * branches, image_shape),
    )
