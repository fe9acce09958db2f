"""The capsule network of Hinton, Sabour and Frosst 2018, 'Matrix capsules with EM routing'."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.nn import CapsConv2d, ClassCaps, PrimaryMatrixCaps2d, Router, Standardise, make_router
from torchcaps.ops import receptive_centres
from torchcaps.ops.conv import Competition, PoseKind
from torchcaps.types import Capsules, Trace

# (kernel, stride) of the convolution, the primary capsules and the two convolutional capsule layers.
CONVS = ((5, 2), (1, 1), (3, 2), (3, 1))
Routing = Router | str | Mapping[str, Any]


class MatrixCapsNet(ImageModel):
    """A convolution, primary capsules with 4x4 poses, two convolutional capsule layers, one capsule per class.

    `widths` are the paper's A, B, C, D: channels of the convolution, then capsule types of the three layers. Each layer
    gets a copy of `routing`, the class layer its own one where `class_routing` is given: the released code takes a
    quarter of the inverse temperature there. With `pose="vector"` a pose is sixteen numbers that vote through 16x16
    matrices, sixteen times as many weights (the paper's table 1); EM then has no fast twin. `coordinates` turns
    coordinate addition on or off. `light` is the random brightness and contrast that standardised images get in
    training, see `Standardise`. Where a routing does not look at the activations of children but at the lengths of
    their votes, the primary poses are made as long as they are active.
    """

    loss = "spread"

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        widths: tuple[int, int, int, int],
        routing: Routing = "em",
        class_routing: Routing | None = None,
        competition: Competition = "global",
        pose: PoseKind = "matrix",
        coordinates: bool = True,
        light: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        channels, primary, lower, upper = widths
        rows, columns = (receptive_centres(size, CONVS) for size in image_shape[1:])
        if not rows or not columns:
            raise ShapeError(f"image_shape: expected height and width of at least 17, got {image_shape}")
        router = make_router(routing)
        self.stem = nn.Sequential(Standardise(**light or {}), nn.Conv2d(image_shape[0], channels, *CONVS[0]), nn.ReLU())
        self.primary = PrimaryMatrixCaps2d(channels, primary, 16, *CONVS[1])
        kind: dict[str, Any] = {"competition": competition, "pose": pose}
        self.lower = CapsConv2d(primary, lower, *CONVS[2], routing=copy.deepcopy(router), **kind)
        self.upper = CapsConv2d(lower, upper, *CONVS[3], routing=copy.deepcopy(router), **kind)
        centres = (rows, columns) if coordinates else None
        last = copy.deepcopy(router) if class_routing is None else make_router(class_routing)
        self.head = ClassCaps(upper, num_classes, pose=pose, routing=last, centres=centres)

    def features(self, images: Tensor) -> Capsules:
        """The capsules below the classes, a grid [B, H, W, D, 16]."""
        self.check_images(images)
        poses, activations = self.primary(self.stem(images))
        if self.lower.routing.by_length:
            poses = poses * activations.unsqueeze(-1)  # [B, H, W, I, 16]
        return self.upper(self.lower(Capsules(poses, activations)))

    def forward(self, images: Tensor) -> Capsules:
        return self.head(self.features(images))

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))


@register_model("matrix_capsnet")
def matrix_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Routing = "em",
    class_routing: Routing | None = None,
    competition: Competition = "global",
    pose: PoseKind = "matrix",
    coordinates: bool = True,
    light: Mapping[str, float] | None = None,
) -> MatrixCapsNet:
    """The paper's network, A = B = C = D = 32; 317,194 parameters for two channels and five classes."""
    return MatrixCapsNet(
        image_shape,
        num_classes,
        widths=(32, 32, 32, 32),
        routing=routing,
        class_routing=class_routing,
        competition=competition,
        pose=pose,
        coordinates=coordinates,
        light=light,
    )


@register_model("matrix_capsnet_small")
def matrix_capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: Routing = "em",
    class_routing: Routing | None = None,
    competition: Competition = "global",
    pose: PoseKind = "matrix",
    coordinates: bool = True,
    light: Mapping[str, float] | None = None,
) -> MatrixCapsNet:
    """The paper's small network, A = 64, B = 8, C = D = 16; 68,754 parameters for two channels and five classes."""
    return MatrixCapsNet(
        image_shape,
        num_classes,
        widths=(64, 8, 16, 16),
        routing=routing,
        class_routing=class_routing,
        competition=competition,
        pose=pose,
        coordinates=coordinates,
        light=light,
    )
