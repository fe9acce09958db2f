"""The panel Pose: what each dimension of a class capsule represents, and how the pose follows the image."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.errors import ConfigError
from torchcaps.evaluation import OFFSETS, perturb
from torchcaps.playground.catalog import NetworkDep
from torchcaps.playground.images import EncodedImages, ImageSource, RequestModel, encode_images, tile_images
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.types import Capsules

router = APIRouter()

PoseValue = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False, strict=True)]
ClassNumber = Annotated[int, Field(ge=0, le=10_000, strict=True)]
TransformName = Literal["right", "down", "rotate", "scale", "shear"]


class SliderRange(BaseModel):
    """The range of a slider on the page.

    Attributes:
        low: Smallest value.
        high: Largest value.
        step: Distance of two values.
        default: The value without effect.
    """

    low: float
    high: float
    step: float
    default: float


class PoseLimits(BaseModel):
    """Ranges of the sliders of the panel."""

    offset: SliderRange
    transforms: dict[TransformName, SliderRange]


LIMITS = PoseLimits(
    offset=SliderRange(low=-0.3, high=0.3, step=0.01, default=0),
    transforms={
        "right": SliderRange(low=-7, high=7, step=1, default=0),
        "down": SliderRange(low=-7, high=7, step=1, default=0),
        "rotate": SliderRange(low=-70, high=70, step=2, default=0),
        "scale": SliderRange(low=0.58, high=1.42, step=0.02, default=1),
        "shear": SliderRange(low=-0.7, high=0.7, step=0.02, default=0),
    },
)
# Number of values of a sweep: odd, so that the default is among them, and whole pixels for shifts.
SWEEP_COUNTS: dict[TransformName, int] = {"right": 15, "down": 15, "rotate": 29, "scale": 29, "shear": 29}


class PoseRequest(RequestModel):
    """An image and a class.

    Attributes:
        source: The image.
        label: Class whose capsule is returned; the longest capsule by default.
    """

    source: ImageSource
    label: ClassNumber | None = None


class PoseResponse(BaseModel):
    """The pose of a class capsule."""

    image: EncodedImages
    label: int
    activations: list[float]
    pose: list[float]


class DecodeRequest(RequestModel):
    """A pose for the capsule of a class."""

    label: ClassNumber
    pose: list[PoseValue] = Field(min_length=1, max_length=256)


class DecodeResponse(BaseModel):
    """The reconstruction from a pose, and the length of the pose."""

    image: EncodedImages
    length: float


class GridResponse(BaseModel):
    """The perturbation grid as one image: a row for each dimension, a column for each offset."""

    image: EncodedImages
    rows: int
    offsets: list[float]


class ImageTransform(RequestModel):
    """A transformation of the image.

    Attributes:
        right: Shift to the right in pixels.
        down: Shift downwards in pixels.
        rotate: Rotation in degrees, anticlockwise.
        scale: Factor.
        shear: Slope.
    """

    right: int = Field(default=0, ge=-8, le=8, strict=True)
    down: int = Field(default=0, ge=-8, le=8, strict=True)
    rotate: float = Field(default=0, ge=-90, le=90, strict=True)
    scale: float = Field(default=1, ge=0.5, le=1.5, strict=True)
    shear: float = Field(default=0, ge=-1, le=1, strict=True)


class TransformRequest(RequestModel):
    """An image, its transformation, and the one parameter that is swept over its range."""

    source: ImageSource
    transform: ImageTransform = ImageTransform()
    sweep: TransformName = "rotate"


class ClassScores(BaseModel):
    """Scores of both networks for one image, by class."""

    capsules: list[float]
    cnn: list[float] | None


class TransformResponse(BaseModel):
    """The sweep of one transformation parameter.

    Attributes:
        image: The transformed image.
        label: Class that the network predicts for the original image.
        values: Values of the swept parameter.
        lengths: Length of that class's capsule at each value.
        poses: Pose of that class's capsule at each value.
        cnn: Probability of that class by the CNN at each value; None without a CNN.
        scores: Scores of the transformed image.
    """

    image: EncodedImages
    label: int
    values: list[float]
    lengths: list[float]
    poses: list[list[float]]
    cnn: list[float] | None
    scores: ClassScores


def unavailable_reason(network: PlaygroundNetwork) -> str | None:
    """Reason why the panel cannot show this network; None if it can."""
    if network.model.class_router is None:
        return "This network has no class capsules: its classes have scores and no poses."
    return None


@router.post("/capsule")
def find_pose(body: PoseRequest, network: NetworkDep) -> PoseResponse:
    """The pose of a class capsule."""
    with torch.inference_mode():
        image = network.image(body.source)  # [1, C, H, W]
        poses, activations = network.model(image)
        label = _check_label(network, int(activations.argmax()) if body.label is None else body.label)
        return PoseResponse(
            image=encode_images(image), label=label, activations=activations[0].tolist(), pose=poses[0, label].tolist()
        )


@router.post("/decode")
def decode(body: DecodeRequest, network: NetworkDep) -> DecodeResponse:
    """The reconstruction from a pose."""
    with torch.inference_mode():
        capsules, labels = _single_capsule(body, network)
        image = encode_images(network.model.decode(capsules, labels))
        return DecodeResponse(image=image, length=float(capsules.activations.max()))


@router.post("/grid")
def grid(body: DecodeRequest, network: NetworkDep) -> GridResponse:
    """Reconstructions with every dimension changed by every offset (Sabour et al. 2017, figure 4)."""
    capsules, labels = _single_capsule(body, network)
    images = perturb(network.model, capsules, int(labels))  # [D, N, C, H, W]
    return GridResponse(image=encode_images(tile_images(images)), rows=len(images), offsets=list(OFFSETS))


@router.post("/transform")
def transform(body: TransformRequest, network: NetworkDep) -> TransformResponse:
    """Length and pose of the predicted class over a sweep of one transformation, and the CNN's probability."""
    values = sweep_values(body.sweep)
    variants = [body.transform.model_copy(update={body.sweep: value}) for value in values]
    with torch.inference_mode():
        image = network.image(body.source)  # [1, C, H, W]
        batch = torch.cat([image, transform_image(image, [body.transform, *variants])])  # [2 + N, C, H, W]
        poses, activations = network.model(batch)
        cnn = None if network.cnn is None else network.cnn(batch).activations  # [2 + N, J]
        label = int(activations[0].argmax())
        return TransformResponse(
            image=encode_images(batch[1:2]),
            label=label,
            values=values,
            lengths=activations[2:, label].tolist(),
            poses=poses[2:, label].tolist(),
            cnn=None if cnn is None else cnn[2:, label].tolist(),
            scores=ClassScores(capsules=activations[1].tolist(), cnn=None if cnn is None else cnn[1].tolist()),
        )


def sweep_values(name: TransformName) -> list[float]:
    """Evenly spaced values over the range of a transformation parameter.

    Args:
        name: The parameter.

    Returns:
        The values, the default in the middle.

    Example:
        >>> sweep_values("right")[:3]
        [-7.0, -6.0, -5.0]
    """
    limits, count = LIMITS.transforms[name], SWEEP_COUNTS[name]
    return [limits.low + (limits.high - limits.low) * place / (count - 1) for place in range(count)]


def transform_image(image: Tensor, variants: list[ImageTransform]) -> Tensor:
    """Apply several transformations to one image.

    Args:
        image: The image.
        variants: The transformations.

    Shape:
        image: [1, C, H, W]; returns [N, C, H, W] for N transformations.

    Returns:
        The transformed images.
    """
    images = image.expand(len(variants), -1, -1, -1)  # [N, C, H, W]
    angle = torch.tensor([math.radians(variant.rotate) for variant in variants])  # [N]
    factor = torch.tensor([variant.scale for variant in variants])  # [N]
    images = transforms.affine(images, angle, factor, torch.tensor([variant.shear for variant in variants]))
    down, right = (torch.tensor([round(getattr(variant, name)) for variant in variants]) for name in ("down", "right"))
    return transforms.shift(images, down, right)


def _check_label(network: PlaygroundNetwork, label: int) -> int:
    if label >= network.model.num_classes:
        raise ConfigError(f"label: expected a class number from 0 to {network.model.num_classes - 1}, got {label}")
    return label


def _single_capsule(body: DecodeRequest, network: PlaygroundNetwork) -> tuple[Capsules, Tensor]:
    """Class capsules [1, J, D] that are zero except for the given pose, and the label [1]."""
    if network.model.decoder is None:
        raise ConfigError(f"network: expected one with a decoder, got {network.name} without")
    label = _check_label(network, body.label)
    size = network.pose_size
    if len(body.pose) != size:
        raise ConfigError(f"pose: expected {size} numbers, got {len(body.pose)}")
    poses = torch.zeros(1, network.model.num_classes, size)  # [1, J, D]
    poses[0, label] = torch.tensor(body.pose)
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1)), torch.tensor([label])
