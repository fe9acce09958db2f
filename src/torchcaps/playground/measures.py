"""Measurements of a network on its sample images: reconstruction, receptive fields, and what routing changes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from pydantic import BaseModel
from torch import Tensor

from torchcaps.diagnostics.hooks import routing_layers, uniform_routing
from torchcaps.evaluation import predict_labels
from torchcaps.models import ImageModel
from torchcaps.playground.network import PlaygroundNetwork
from torchcaps.types import Trace

# Number of samples of a measurement: a fraction of a second.
MAX_IMAGES = 60
# A decoder whose error is above this fraction of the mean image's has learned little else.
POOR_RECONSTRUCTION = 0.9

T = TypeVar("T")


def once_per_network(measure: Callable[[PlaygroundNetwork], T]) -> Callable[[PlaygroundNetwork], T]:
    """Store the result of a measurement for every network."""
    results: WeakKeyDictionary[PlaygroundNetwork, T] = WeakKeyDictionary()
    lock = threading.Lock()

    @wraps(measure)
    def stored(network: PlaygroundNetwork) -> T:
        with lock:
            if network not in results:
                results[network] = measure(network)
            return results[network]

    return stored


class ReconstructionQuality(BaseModel):
    """Error of the reconstructions of sample images.

    Attributes:
        error: Mean squared error of the decoder with the true classes.
        mean_error: Mean squared error of the mean image in place of every reconstruction.
        poor: Whether the decoder is hardly better than the mean image.
    """

    error: float
    mean_error: float
    poor: bool


@once_per_network
def reconstruction_quality(network: PlaygroundNetwork) -> ReconstructionQuality | None:
    """Compare the decoder with the mean image of the samples.

    Args:
        network: The network.

    Returns:
        Both errors; None without a decoder or for pairs of digits.
    """
    if network.model.decoder is None or network.labels != 1:
        return None
    with torch.inference_mode():
        images = network.padded(network.samples.images[:MAX_IMAGES])  # [N, C, H, W]
        capsules = network.model(images)
        drawn = network.model.decode(capsules, network.samples.labels[: len(images)])  # [N, C, H, W]
        error = float((drawn - images).square().mean())
        mean_error = float((images - images.mean(dim=0)).square().mean())
    return ReconstructionQuality(
        error=error, mean_error=mean_error, poor=error > POOR_RECONSTRUCTION * max(mean_error, 1e-9)
    )


@once_per_network
def receptive_fields(network: PlaygroundNetwork) -> list[list[float]]:
    """Measure which pixels reach each position of the grid of primary capsules.

    A pixel reaches a position if the gradient of its capsules is not zero there.

    Args:
        network: The network.

    Returns:
        Top, left, bottom and right of the field of each position, from 0 to 1; none if the capsules have no positions.
    """
    _, height, width = network.model.image_shape
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(2, *network.model.image_shape, generator=generator).requires_grad_()  # [2, C, H, W]
    poses = network.model.features(noise).poses
    if poses.dim() != 5:
        return []
    fields = []
    for place in poses.sum(dim=(0, 3, 4)).flatten():
        (gradient,) = torch.autograd.grad(place, noise, retain_graph=True)
        reached = gradient.abs().sum(dim=(0, 1)) > 0  # [H, W]
        rows, columns = reached.any(dim=1).nonzero().flatten(), reached.any(dim=0).nonzero().flatten()
        if not len(rows):
            return []
        box = (rows[0] / height, columns[0] / width, (rows[-1] + 1) / height, (columns[-1] + 1) / width)
        fields.append([float(side) for side in box])
    return fields


@once_per_network
def spare_model(network: PlaygroundNetwork) -> ImageModel:
    """A copy of the model: while a layer of it couples uniformly, other requests use the original."""
    return copy.deepcopy(network.model)


_SPARE_LOCK = threading.Lock()


def trace_uniform(network: PlaygroundNetwork, images: Tensor) -> Trace:
    """Trace the class layer of a network with uniform coupling, everything else as it is.

    Args:
        network: The network.
        images: Its input.

    Shape:
        images: [B, C, H, W]; returns poses [R, B, J, D].

    Returns:
        The trace.
    """
    model = spare_model(network)
    head = list(routing_layers(model).values())[-1]
    with _SPARE_LOCK, uniform_routing(head) as traces:
        model(images)
    return traces[-1]


@once_per_network
def changed_by_routing(network: PlaygroundNetwork) -> Tensor:
    """Measure on which samples the prediction changes if every routing layer couples uniformly.

    `diagnostics.diagnose_layers` gives the share of such images as `changed`, for each layer alone.

    Args:
        network: The network.

    Shape:
        returns [N], bool.

    Returns:
        True where the prediction changes.
    """
    model = spare_model(network)
    with torch.inference_mode(), _SPARE_LOCK:
        images = network.padded(network.samples.images[:MAX_IMAGES])  # [N, C, H, W]
        usual = _labels(model, images, network.labels)  # [N, K]
        changed = torch.zeros(len(images), dtype=torch.bool)  # [N]
        for layer in routing_layers(model).values():
            with uniform_routing(layer):
                changed |= (_labels(model, images, network.labels) != usual).any(dim=1)
        return changed


def _labels(model: ImageModel, images: Tensor, count: int) -> Tensor:
    """The predicted classes of each image in ascending order, [N, count]."""
    return predict_labels(model(images).activations, count).reshape(len(images), count).sort(dim=1).values
