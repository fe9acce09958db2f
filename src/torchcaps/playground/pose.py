"""The panel Pose: what the dimensions of a class capsule stand for, and what moves them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.errors import ConfigError
from torchcaps.eval import OFFSETS, perturb
from torchcaps.models.cnn import CNN
from torchcaps.playground.network import Network, Playing
from torchcaps.playground.picture import Images, Request, Source, encode, sheet
from torchcaps.types import Capsules

router = APIRouter()


Number = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]


class Look(Request):
    """A picture, and the class whose capsule is meant; without one, the longest."""

    source: Source
    label: int | None = Field(default=None, ge=0, le=10_000)


class Posed(BaseModel):
    """A class capsule as the network found it, and the picture."""

    image: Images
    label: int
    activations: list[float]
    pose: list[float]


class Given(Request):
    """A pose for the capsule of a class."""

    label: int = Field(ge=0, le=10_000)
    pose: list[Number] = Field(min_length=1, max_length=256)


class Decoded(BaseModel):
    """What the decoder makes of a pose, and how long it is."""

    image: Images
    length: float


class Grid(BaseModel):
    """One image of all: a row for each dimension, a column for each offset."""

    image: Images
    rows: int
    offsets: list[float]


class Transform(Request):
    """What is done to the picture: pixels to the right and down, degrees anticlockwise, a factor, a slope."""

    right: int = Field(default=0, ge=-8, le=8)
    down: int = Field(default=0, ge=-8, le=8)
    rotate: float = Field(default=0, ge=-90, le=90)
    scale: float = Field(default=1, ge=0.5, le=1.5)
    shear: float = Field(default=0, ge=-1, le=1)


Kind = Literal["right", "down", "rotate", "scale", "shear"]
# From where to where each is tried, and at how many places: odd, so that the middle is among them, and whole pixels.
RANGES: dict[Kind, tuple[float, float, int]] = {
    "right": (-7, 7, 15),
    "down": (-7, 7, 15),
    "rotate": (-70, 70, 29),
    "scale": (0.58, 1.42, 29),
    "shear": (-0.7, 0.7, 29),
}


class Move(Request):
    """A picture, what is done to it, and the one change of these that is tried from end to end."""

    source: Source
    transform: Transform = Transform()
    along: Kind = "rotate"


class Moved(BaseModel):
    """The class that the network sees in the untouched picture, and what becomes of it along the way.

    `lengths`, `cnn` and `poses` have a value at each of `places`; `now` is for the transform that was asked for.
    """

    image: Images
    label: int
    places: list[float]
    lengths: list[float]
    poses: list[list[float]]
    cnn: list[float] | None
    now: Answers


class Answers(BaseModel):
    """What both networks say to one picture, class by class."""

    capsules: list[float]
    cnn: list[float] | None


def lacking(network: Network) -> str | None:
    """Why there is nothing to move; None where there is."""
    return "The classes of this network have a score and no pose." if isinstance(network.model, CNN) else None


@router.post("/look")
def look(asked: Look, network: Playing) -> Posed:
    """The pose of a class capsule."""
    with torch.inference_mode():
        image = network.image(asked.source)  # [1, C, H, W]
        poses, activations = network.model(image)
        label = _label(network, int(activations.argmax()) if asked.label is None else asked.label)
        return Posed(
            image=encode(image), label=label, activations=activations[0].tolist(), pose=poses[0, label].tolist()
        )


@router.post("/decode")
def decode(asked: Given, network: Playing) -> Decoded:
    """The picture that belongs to a pose."""
    with torch.inference_mode():
        capsules, labels = _alone(asked, network)
        return Decoded(image=encode(network.model.decode(capsules, labels)), length=float(capsules.activations.max()))


@router.post("/grid")
def grid(asked: Given, network: Playing) -> Grid:
    """Every dimension moved by every offset (Sabour et al. 2017, fig. 4)."""
    capsules, labels = _alone(asked, network)
    images = perturb(network.model, capsules, int(labels))  # [D, N, C, H, W]
    return Grid(image=encode(sheet(images)), rows=len(images), offsets=list(OFFSETS))


@router.post("/move")
def move(asked: Move, network: Playing) -> Moved:
    """Length and pose of the winning capsule while the picture is moved, beside the CNN's answer."""
    low, high, count = RANGES[asked.along]
    places = [low + (high - low) * place / (count - 1) for place in range(count)]
    tries = [asked.transform.model_copy(update={asked.along: place}) for place in places]
    with torch.inference_mode():
        image = network.image(asked.source)  # [1, C, H, W]
        batch = torch.cat([image, transformed(image, [asked.transform, *tries])])  # [2 + N, C, H, W]
        poses, activations = network.model(batch)
        cnn = None if network.cnn is None else network.cnn(batch).activations  # [2 + N, J]
        label = int(activations[0].argmax())
        return Moved(
            image=encode(batch[1:2]),
            label=label,
            places=places,
            lengths=activations[2:, label].tolist(),
            poses=poses[2:, label].tolist(),
            cnn=None if cnn is None else cnn[2:, label].tolist(),
            now=Answers(capsules=activations[1].tolist(), cnn=None if cnn is None else cnn[1].tolist()),
        )


def transformed(image: Tensor, transforms_: list[Transform]) -> Tensor:
    """One image [1, C, H, W] changed in each of these ways: [N, C, H, W]."""
    images = image.expand(len(transforms_), -1, -1, -1)  # [N, C, H, W]
    angle = torch.tensor([math.radians(one.rotate) for one in transforms_])  # [N]
    factor = torch.tensor([one.scale for one in transforms_])  # [N]
    images = transforms.affine(images, angle, factor, torch.tensor([one.shear for one in transforms_]))
    down, right = (torch.tensor([round(getattr(one, name)) for one in transforms_]) for name in ("down", "right"))
    return transforms.shift(images, down, right)


def _label(network: Network, label: int) -> int:
    if label >= network.model.num_classes:
        raise ConfigError(f"label: expected a class number from 0 to {network.model.num_classes - 1}, got {label}")
    return label


def _alone(asked: Given, network: Network) -> tuple[Capsules, Tensor]:
    """Class capsules [1, J, D] of which only the one given is there, and its number [1]."""
    if network.model.decoder is None:
        raise ConfigError("decode: expected a network with a decoder, got one without")
    label = _label(network, asked.label)
    size = network.pose_size
    if len(asked.pose) != size:
        raise ConfigError(f"pose: expected {size} numbers, got {len(asked.pose)}")
    poses = torch.zeros(1, network.model.num_classes, size)  # [1, J, D]
    poses[0, label] = torch.tensor(asked.pose)
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1)), torch.tensor([label])
