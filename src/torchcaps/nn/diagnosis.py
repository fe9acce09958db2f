"""What each routing layer of a network does with a batch of images: how it decides, and which parents it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.nn.watch import routed_evenly, routing_layers, trace_calls, watching
from torchcaps.ops import Window
from torchcaps.ops.diagnostics import DEAD, STARVED, coupling_entropy, logit_change
from torchcaps.types import Trace

# Numbers that the votes of a batch may have in a layer: with what is computed from them, a few hundred MB.
ROOM = 2**23
BATCH = 64


@dataclass(frozen=True)
class LayerDiagnosis:
    """One routing layer over all images; types of capsules stand for parents where there is a grid of them.

    `entropy` [R] and `logit_change` [R-1] are those of `ops.diagnostics`. `changed` is the share of images whose class
    becomes another one, or is left tied, when this layer alone couples evenly (`nn.watch.trace_evenly`); None where its
    router cannot be made to. `activation` [J] is the highest that each parent came to in any image, `share` [J] the
    coupling that fell to it in the last iteration, where an even share is 1.
    """

    name: str
    router: str
    children: int
    parents: int
    entropy: tuple[float, ...]
    logit_change: tuple[float, ...]
    changed: float | None
    activation: tuple[float, ...]
    share: tuple[float, ...]

    @property
    def dead(self) -> float:
        """The share of parents that are never more active than 0.05."""
        return sum(value < DEAD for value in self.activation) / self.parents

    @property
    def starved(self) -> float:
        """The share of parents that get less than a hundredth of an even share of the coupling."""
        return sum(value < STARVED for value in self.share) / self.parents


@torch.no_grad()
def layer_votes(model: nn.Module, image: Tensor) -> dict[str, int]:
    """How many numbers the votes for one image [1, C, H, W] are in each routing layer, in the order of the pass."""
    layers: dict[str, Any] = routing_layers(model)
    with watching(layers) as received:
        model(image)
    return {name: layers[name].trace(*calls[-1]).votes.numel() for name, calls in received.items()}


def room_for(votes: int) -> int:
    """How many images to take at once that have so many votes each.

    >>> room_for(1152 * 10 * 16), room_for(2**30)
    (45, 1)
    """
    return max(1, min(BATCH, ROOM // votes))


@torch.no_grad()
def diagnose_layers(
    model: nn.Module, batches: Iterable[Tensor], names: Collection[str] | None = None
) -> tuple[LayerDiagnosis, ...]:
    """The routing layers of a network of classes over batches of images, in the order of the pass: all, or some.

    Each batch [B, C, H, W] goes through the network once, and once more for every layer, with even coupling in it.
    """
    layers: dict[str, Any] = routing_layers(model)
    if names is not None:
        layers = {name: layers[name] for name in names}
    sums: dict[str, _Sums] = {}
    total = 0
    for images in batches:
        total += len(images)
        with watching(layers) as received:
            usual = model(images).activations.argmax(dim=-1)  # [B]
        for name, calls in received.items():
            layer = layers[name]
            trace = trace_calls(layer, calls)
            window = layer.window(calls[-1][0]) if hasattr(layer, "window") else None
            with routed_evenly(layer) as even:
                other = _decided(model(images).activations)  # [B]
            changed = float((other != usual).sum()) if _is_even(even[-1].coupling) else None
            sums.setdefault(name, _Sums(trace)).add(trace, window, len(images), changed)
    return tuple(found.layer(name, total) for name, found in sums.items())


class _Sums:
    """What is added up over the batches for one layer."""

    def __init__(self, trace: Trace) -> None:
        self.router = trace.algorithm
        self.children = trace.votes.shape[1]
        parents = trace.votes.shape[2]
        self.entropy = torch.zeros(trace.iters)  # [R]
        self.logit_change = torch.zeros(trace.iters - 1)
        self.changed: float | None = 0.0
        self.activation = torch.zeros(parents)  # [J]
        self.mass = torch.zeros(parents)  # [J]

    def add(self, trace: Trace, window: Window | None, count: int, changed: float | None) -> None:
        self.entropy += count * coupling_entropy(trace.coupling, window).cpu()
        self.logit_change += count * logit_change(trace.logits, window).cpu()
        self.activation = torch.maximum(self.activation, trace.activations[-1].amax(dim=0).cpu())
        self.mass += trace.coupling[-1].sum(dim=(0, 1)).cpu()
        self.changed = None if changed is None or self.changed is None else self.changed + changed

    def layer(self, name: str, count: int) -> LayerDiagnosis:
        return LayerDiagnosis(
            name=name,
            router=self.router,
            children=self.children,
            parents=len(self.mass),
            entropy=tuple((self.entropy / count).tolist()),
            logit_change=tuple((self.logit_change / count).tolist()),
            changed=None if self.changed is None else self.changed / count,
            activation=tuple(self.activation.tolist()),
            share=tuple((self.mass / self.mass.mean()).tolist()),
        )


def _is_even(coupling: Tensor) -> bool:
    """Whether children [..., J] make no difference between the parents, but for rounding."""
    return bool((coupling.amax(dim=-1) <= 1.0001 * coupling.amin(dim=-1)).all())


def _decided(activations: Tensor) -> Tensor:
    """The most active class of each image [B], or -1 where another is as active but for rounding."""
    if activations.shape[1] == 1:
        return activations.argmax(dim=-1)
    best = activations.topk(2, dim=-1)
    tied = best.values[:, 0] - best.values[:, 1] <= 1e-6 * best.values[:, 0].abs()
    return best.indices[:, 0].masked_fill(tied, -1)
