"""A look at the routing after each epoch, on a few fixed images: columns of metrics.csv beside loss and accuracy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import Augment, BatchLoader, ImageData
from torchcaps.nn.watch import at_rest, gradient_norms, routing_layers, watching
from torchcaps.ops.diagnostics import DEAD, coupling_entropy

# A fraction of a training step, so that it costs well below a hundredth of an epoch of fifty steps or more.
IMAGES = 16


class Vitals:
    """Measures a network on the same images of the validation part each time, without leaving a trace in it.

    `entropy` is that of the coupling into the classes at the last iteration (`ops.diagnostics.coupling_entropy`),
    `dead` the share of classes that are active in none of the images; networks without routing have neither.
    `gradient_norm` is the length of the gradient of the classification loss.
    """

    def __init__(self, data: ImageData, augment: Augment) -> None:
        places = torch.linspace(0, len(data) - 1, min(IMAGES, len(data))).round().long()
        self.images, self.labels, *_ = next(iter(BatchLoader(data.subset(places), IMAGES, augment=augment)))

    def __call__(self, model: nn.Module, loss: nn.Module) -> dict[str, float]:
        parameter = next(model.parameters())
        images, labels = self.images.to(parameter), self.labels.to(parameter.device)
        with at_rest(model), at_rest(loss):
            norms = gradient_norms(model, loss, images, labels)
            return {**_class_layer(model, images), "gradient_norm": sum(norm**2 for norm in norms.values()) ** 0.5}


@torch.no_grad()
def _class_layer(model: nn.Module, images: Tensor) -> dict[str, float]:
    layers: dict[str, Any] = routing_layers(model)
    with watching(layers) as received:
        model(images)
    if not received:
        return {}
    name, args = list(received.items())[-1]
    layer = layers[name]
    window = layer.window(*args) if hasattr(layer, "window") else None
    trace = layer.trace(*args)
    alive = trace.activations[-1].amax(dim=0) >= DEAD  # [J]
    return {
        "entropy": float(coupling_entropy(trace.coupling[-1:], window)),
        "dead": 1 - float(alive.float().mean()),
    }
