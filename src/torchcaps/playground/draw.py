"""The panel Draw: lengths and reconstructions of the class capsules for one image."""

from __future__ import annotations

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field

from torchcaps.data import to_float
from torchcaps.evaluation import predict_labels
from torchcaps.nn.scores import log_probabilities
from torchcaps.playground.catalog import NetworkDep
from torchcaps.playground.explanation import relevance_maps
from torchcaps.playground.images import EncodedImages, ImageSource, RequestModel, encode_images
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.types import Capsules

router = APIRouter()


class DrawRequest(RequestModel):
    """An image to classify."""

    source: ImageSource


class DrawResponse(BaseModel):
    """The class capsules of an image.

    Attributes:
        image: The input of the network.
        activations: Length of each class capsule.
        probabilities: Calibrated probability of each class; None if the training fitted no temperature.
        reconstructions: Decoder output of each class capsule alone; None without a decoder.
        relevance: Relevance of each pixel for the predicted class, or for both; None without routing.
    """

    image: EncodedImages
    activations: list[float]
    probabilities: list[float] | None
    reconstructions: EncodedImages | None
    relevance: EncodedImages | None


class SamplesRequest(RequestModel):
    """A range of sample numbers."""

    start: int = Field(default=0, ge=0, le=100_000, strict=True)
    count: int = Field(default=40, ge=1, le=100, strict=True)


class SamplesResponse(BaseModel):
    """Images of the data set with their labels."""

    images: EncodedImages
    labels: list[int]


@router.post("/predict")
def predict(body: DrawRequest, network: NetworkDep) -> DrawResponse:
    """Length and reconstruction of every class capsule, and what the prediction rests on."""
    with torch.inference_mode():
        image = network.image(body.source)  # [1, C, H, W]
        capsules = network.model(image)
        maps = relevance_maps(network, image, predict_labels(capsules.activations, network.labels).flatten())
        return DrawResponse(
            image=encode_images(image),
            activations=capsules.activations[0].tolist(),
            probabilities=calibrated_probabilities(network, capsules),
            reconstructions=reconstruct_each_class(network, capsules),
            relevance=None if maps is None else encode_images(maps),
        )


def calibrated_probabilities(network: PlaygroundNetwork, capsules: Capsules) -> list[float] | None:
    """Probabilities with the temperature that the training fitted on the validation split; None without one."""
    temperature = network.model.temperature
    if temperature is None:
        return None
    return log_probabilities(capsules.activations, temperature)[0].exp().tolist()


@router.post("/samples")
def samples(body: SamplesRequest, network: NetworkDep) -> SamplesResponse:
    """Images of the data set, by number."""
    chosen = network.samples.subset(range(body.start, min(body.start + body.count, len(network.samples))))
    return SamplesResponse(images=encode_images(to_float(chosen.images)), labels=chosen.labels.tolist())


def reconstruct_each_class(network: PlaygroundNetwork, capsules: Capsules) -> EncodedImages | None:
    """Decode each class capsule alone, in one batch of J images.

    Args:
        network: The network with the decoder.
        capsules: Class capsules of one image.

    Shape:
        capsules: poses [1, J, D], activations [1, J].

    Returns:
        J images; None without a decoder.
    """
    if network.model.decoder is None:
        return None
    count = network.model.num_classes
    poses = capsules.poses.expand(count, -1, -1)  # [J, J, D]
    repeated = Capsules(poses, capsules.activations.expand(count, -1))
    return encode_images(network.model.decode(repeated, torch.arange(count)))  # [J, C, H, W]
