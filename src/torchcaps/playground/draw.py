"""The panel Draw: what the class capsules say to a picture, and what each of them sees in it."""

from __future__ import annotations

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field

from torchcaps.data import to_float
from torchcaps.playground.network import Network, Playing
from torchcaps.playground.picture import Images, Request, Source, encode
from torchcaps.types import Capsules

router = APIRouter()


class Look(Request):
    """A picture to look at."""

    source: Source


class Seen(BaseModel):
    """The picture as the network got it, the length of each class capsule, and what each capsule alone draws."""

    image: Images
    activations: list[float]
    reconstructions: Images | None


class Range(Request):
    """Some of the samples."""

    start: int = Field(default=0, ge=0, le=100_000)
    count: int = Field(default=40, ge=1, le=100)


class Samples(BaseModel):
    """Images of the data with their classes."""

    images: Images
    labels: list[int]


@router.post("/look")
def look(asked: Look, network: Playing) -> Seen:
    """Length and reconstruction of every class capsule."""
    with torch.inference_mode():
        image = network.image(asked.source)  # [1, C, H, W]
        capsules = network.model(image)
        return Seen(
            image=encode(image),
            activations=capsules.activations[0].tolist(),
            reconstructions=each_alone(network, capsules),
        )


@router.post("/samples")
def samples(asked: Range, network: Playing) -> Samples:
    """Images of the data to choose from."""
    chosen = network.samples.subset(range(asked.start, min(asked.start + asked.count, len(network.samples))))
    return Samples(images=encode(to_float(chosen.images)), labels=chosen.labels.tolist())


def each_alone(network: Network, capsules: Capsules) -> Images | None:
    """What the decoder makes of each class capsule alone, J images in one call; None where there is no decoder."""
    if network.model.decoder is None:
        return None
    count = network.model.num_classes
    poses = capsules.poses.expand(count, -1, -1)  # [J, J, D]
    every = Capsules(poses, capsules.activations.expand(count, -1))
    return encode(network.model.decode(every, torch.arange(count)))  # [J, C, H, W]
