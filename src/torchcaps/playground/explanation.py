"""Explanation maps of the playground: the pixels that class capsules are made of."""

from __future__ import annotations

import copy
import threading

import torch
from torch import Tensor

from torchcaps.diagnostics.hooks import routing_layers
from torchcaps.evaluation import make_explainer
from torchcaps.evaluation.saliency_maps import Explainer
from torchcaps.playground.measures import once_per_network
from torchcaps.playground.network import PlaygroundNetwork

# Share of the pixels below full heat: a single pixel must not set the scale.
SHOWN = 0.99


@once_per_network
def _routing_explainer(network: PlaygroundNetwork) -> Explainer | None:
    if not routing_layers(network.model):
        return None
    # A copy: explaining puts hooks on the layers, which other requests must not run into.
    with torch.inference_mode(False):
        explain, lock = make_explainer(copy.deepcopy(network.model), "routing"), threading.Lock()

    def one_at_a_time(images: Tensor, labels: Tensor) -> Tensor:
        with lock:
            return explain(images, labels)

    return one_at_a_time


def relevance_maps(network: PlaygroundNetwork, image: Tensor, labels: Tensor) -> Tensor | None:
    """Return the relevance of each pixel for some classes: coupling times activation, carried back to the image.

    Args:
        network: The network.
        image: The input of the network.
        labels: The classes.

    Shape:
        image: [1, C, H, W]; labels: [n]; returns [n, 1, H, W].

    Returns:
        Maps from 0 to 1, where the most relevant hundredth of the pixels is 1; None for a network without routing.
    """
    explain = _routing_explainer(network)
    if explain is None:
        return None
    maps = explain(image.expand(len(labels), -1, -1, -1), labels).unsqueeze(1)  # [n, 1, H, W]
    most = maps.flatten(1).quantile(SHOWN, dim=1).clamp(min=torch.finfo(maps.dtype).tiny)  # [n]
    return (maps / most.view(-1, 1, 1, 1)).clamp(max=1)
