"""A look at the routing after each epoch, on a few fixed images: its numbers in metrics.csv and diagnostics.csv."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.data import Augment, BatchLoader, ImageData
from torchcaps.nn.diagnosis import LayerDiagnosis, diagnose_layers, layer_votes, room_for
from torchcaps.nn.watch import at_rest, gradient_norms
from torchcaps.train._diagnostics import Row

# About as much work as one training step, or a few of a network with many votes.
IMAGES, FEWEST, WORK = 16, 4, 2**21


class Look(NamedTuple):
    """What was seen of a network after an epoch: its routing layers in the order of the pass, and its gradients."""

    layers: tuple[LayerDiagnosis, ...]
    gradient_norms: dict[str, float]

    def summary(self) -> dict[str, float]:
        """The columns of metrics.csv.

        `entropy` is that of the coupling into the classes at the last iteration (`ops.diagnostics.coupling_entropy`),
        `dead` the share of classes that are active in none of the images; networks without routing have neither.
        `gradient_norm` is the length of the gradient of the classification loss.
        """
        last = {"entropy": self.layers[-1].entropy[-1], "dead": self.layers[-1].dead} if self.layers else {}
        return {**last, "gradient_norm": math.hypot(*self.gradient_norms.values())}

    def rows(self, epoch: int) -> list[Row]:
        """Everything, one row for each layer, iteration and measure; see `LayerDiagnosis` for the measures.

        The change of the logits that is said of an iteration is that from the one before.
        """
        found: list[Row] = []
        for layer in self.layers:
            found += [(epoch, layer.name, place + 1, "entropy", value) for place, value in enumerate(layer.entropy)]
            found += [
                (epoch, layer.name, place + 2, "logit_change", value) for place, value in enumerate(layer.logit_change)
            ]
            shares = {"changed": layer.changed, "dead": layer.dead, "starved": layer.starved}
            found += [(epoch, layer.name, None, name, share) for name, share in shares.items() if share is not None]
        return found + [(epoch, name, None, "gradient_norm", norm) for name, norm in self.gradient_norms.items()]


class Vitals:
    """Measures a network on the same images each time, without leaving a trace in it.

    The layer of the classes sees all of the images, one below it as many as keep the number of its votes small.
    """

    def __init__(self, data: ImageData, augment: Augment) -> None:
        some = data.subset(_spaced(len(data), IMAGES))
        self.images, self.labels, *_ = next(iter(BatchLoader(some, IMAGES, augment=augment)))

    def __call__(self, model: nn.Module, loss: nn.Module) -> Look:
        parameter = next(model.parameters())
        images, labels = self.images.to(parameter), self.labels.to(parameter.device)
        layers: list[LayerDiagnosis] = []
        with at_rest(model), at_rest(loss):
            norms = gradient_norms(model, loss, images, labels)
            votes = layer_votes(model, images[:1])
            for name, size in votes.items():
                count = IMAGES if name == list(votes)[-1] else max(FEWEST, WORK // size)
                some = images[_spaced(len(images), count)]
                layers += diagnose_layers(model, some.split(room_for(size)), [name])
        return Look(tuple(layers), norms)


def _spaced(total: int, count: int) -> Tensor:
    """The places of so many out of all, or of all, evenly spaced."""
    return torch.linspace(0, total - 1, min(count, total)).round().long()
