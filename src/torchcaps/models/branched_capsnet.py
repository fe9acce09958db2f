"""Two small Efficient-CapsNets on common first convolutions whose class capsules are joined. Not from a paper.

Each branch contributes a segment of every class capsule. The length of the joined capsule is the root mean square of
the lengths of its segments, which are at most one: it is near one only if all branches detect the class, and near zero
only if none does. The margin loss of the joined capsule therefore trains every branch to classify on its own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.models._base import ImageModel, ImageShape, check_depth, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, ResidualBlock, conv_size, make_decoder
from torchcaps.models.efficient_capsnet import whole_map_capsules
from torchcaps.nn import CapsLinear, Router, RoutingSpec, make_router
from torchcaps.types import Capsules, Trace

# Channels and kernel of the first convolution, which has no padding.
WIDTH, KERNEL = 32, 5
# Channels of a branch at half the resolution; at a quarter it has twice as many, which form its primary capsules of 8.
CHANNELS = 48
# Pose dimensions that a branch contributes to each class.
DIM = 8


class Branch(nn.Module):
    """Residual convolutions at half and a quarter of the resolution, and 12 primary capsules of 8.

    Args:
        size: Height and width of the maps at a quarter of the resolution.

    Shape:
        maps [B, 32, H, W]; returns poses [B, 12, 8] and activations [B, 12].
    """

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            ResidualBlock(WIDTH, CHANNELS, stride=2),
            ResidualBlock(CHANNELS, CHANNELS),
            nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(2 * CHANNELS),
            nn.ReLU(),
        )
        self.primary = nn.Conv2d(2 * CHANNELS, 2 * CHANNELS, size, groups=2 * CHANNELS)

    def forward(self, maps: Tensor) -> Capsules:
        return whole_map_capsules(self.primary, self.stem(maps))


class BranchedHead(nn.ModuleList):
    """Capsule layers that route equal shares of the children, and whose outputs form one set of class capsules.

    The pose of a class is the concatenation of the poses of all N layers, divided by the square root of N.

    Shape:
        poses [B, N*I, P]; returns poses [B, J, N*D] and activations [B, J].
    """

    def forward(self, children: Capsules) -> Capsules:
        return _join([layer(share) for layer, share in zip(self, self._shares(children), strict=True)])

    def trace(self, children: Capsules) -> Trace:
        """Route and record every iteration of all layers; a child votes on the segment of its layer."""
        traces = [
            layer.trace(share)  # pyright: ignore[reportCallIssue]
            for layer, share in zip(self, self._shares(children), strict=True)
        ]
        return _join_traces(traces)

    def _shares(self, children: Capsules) -> list[Capsules]:
        """Return the children of each layer."""
        return [
            Capsules(*share) for share in zip(*(tensor.chunk(len(self), dim=1) for tensor in children), strict=True)
        ]


class BranchedCapsNet(ImageModel):
    """Common first convolutions, and branches that each contribute a segment of every class capsule.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        branches: Number N of branches.
        routing: Router, its name, or a mapping with its name and options. Each branch gets a copy.
        decoder: Module from masked class capsules to images.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 8 N] and activations [B, J].

    Raises:
        ShapeError: If images are smaller than 5x5.

    Example:
        >>> import torch
        >>> BranchedCapsNet((1, 28, 28), 10, branches=3)(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 10, 24])
    """

    head: BranchedHead

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        branches: int = 2,
        routing: RoutingSpec = "self_attention",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        check_min_size(image_shape, KERNEL)
        check_depth("branches", branches)
        self.stem = ConvStem(
            nn.Conv2d(image_shape[0], WIDTH, KERNEL, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            ResidualBlock(WIDTH, WIDTH),
        )
        height, width = (math.ceil(conv_size(side, KERNEL, 1) / 4) for side in image_shape[1:])
        router = make_router(routing)
        self.branches, self.head = nn.ModuleList(), BranchedHead()
        for _ in range(branches):
            self.branches.append(Branch((height, width)))
            own = copy.deepcopy(router)
            self.head.append(
                CapsLinear(CHANNELS // 4, num_classes, in_dim=8, out_dim=DIM, routing=own, bias=own.takes_bias)
            )
        self.decoder = decoder

    @property
    def class_router(self) -> Router:
        """Router of the first branch; the others have the same kind with weights of their own."""
        return self.head[0].routing  # pyright: ignore[reportReturnType]

    def features(self, images: Tensor) -> Capsules:
        """Return the primary capsules of all branches, branch by branch, [B, 12 N, 8]."""
        self.check_images(images)
        maps = self.stem(images)  # [B, 32, H, W]
        poses, activations = zip(*(branch(maps) for branch in self.branches), strict=True)
        return Capsules(torch.cat(poses, dim=1), torch.cat(activations, dim=1))

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))


def _join(parts: Sequence[Capsules | Trace]) -> Capsules:
    share = 1 / math.sqrt(len(parts))
    poses = share * torch.cat([part.poses for part in parts], dim=-1)  # [..., J, N D]
    # The length of that pose, where the activations of the branches are lengths.
    activations = share * torch.linalg.vector_norm(torch.stack([part.activations for part in parts]), dim=0)
    return Capsules(poses, activations)


def _join_traces(traces: list[Trace]) -> Trace:
    # Zeros before and after the segment, where the segments of the other branches are.
    padding = [(DIM * number, DIM * (len(traces) - 1 - number)) for number in range(len(traces))]
    votes = torch.cat([F.pad(trace.votes, sides) for trace, sides in zip(traces, padding, strict=True)], dim=1)
    poses, activations = _join(traces)  # [R, B, J, N D], [R, B, J]
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
    routing: RoutingSpec = "self_attention",
    decoder: str | None = "deconv",
) -> BranchedCapsNet:
    """Two branches of 12 primary capsules, joined class capsules of 16; 281,552 parameters without the decoder.

    With `branches=1` it is a plain network, for comparison.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        branches: Number of branches.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    check_depth("branches", branches)
    return BranchedCapsNet(
        image_shape,
        num_classes,
        branches=branches,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, DIM * branches, image_shape),
    )
