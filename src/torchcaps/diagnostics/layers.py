"""Diagnostics of each routing layer of a network over batches of images."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.diagnostics.hooks import record_inputs, routing_layers, trace_calls, uniform_routing
from torchcaps.diagnostics.measures import DEAD, STARVED, coupling_entropy, logit_change
from torchcaps.ops import Window
from torchcaps.types import Trace

# Largest number of votes of a batch in one layer: with all intermediate results a few hundred MB.
MAX_VOTES = 2**23
MAX_BATCH = 64


@dataclass(frozen=True)
class LayerDiagnostics:
    """Statistics of one routing layer over all images.

    In a convolutional layer a parent is a capsule type: its positions are pooled.

    Attributes:
        name: Path of the layer in the network.
        router: Name of the routing algorithm.
        children: Number of children.
        parents: Number of parents.
        entropy: Normalised entropy of the coupling per iteration [R], see `coupling_entropy`.
        logit_change: Mean absolute change of the logits per iteration [R-1], see `logit_change`.
        changed: Share of images whose predicted class changes, or becomes tied, if this layer alone couples
            uniformly; None if its router has no coupling that could be replaced.
        activation: Largest activation of each parent over all images [J].
        share: Coupling of each parent in the last iteration, relative to a uniform share [J].
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
        """Share of parents whose activation stays below 0.05."""
        return sum(value < DEAD for value in self.activation) / self.parents

    @property
    def starved(self) -> float:
        """Share of parents that get less than a hundredth of a uniform share of the coupling."""
        return sum(value < STARVED for value in self.share) / self.parents


@torch.no_grad()
def layer_votes(model: nn.Module, image: Tensor) -> dict[str, int]:
    """Return the number of vote elements of one image in each routing layer.

    Args:
        model: The network.
        image: A batch with one image.

    Shape:
        image: [1, C, H, W].

    Returns:
        The counts by layer, in the order of the forward pass.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> layer_votes(model, images[:1])
        {'head': 23040}
    """
    layers: dict[str, Any] = routing_layers(model)
    with record_inputs(layers) as received:
        model(image)
    return {name: layers[name].trace(*calls[-1]).votes.numel() for name, calls in received.items()}


def images_per_batch(votes: int) -> int:
    """Return the batch size that keeps the votes of a layer in memory.

    Args:
        votes: Number of vote elements per image.

    Returns:
        A batch size from 1 to 64.

    Example:
        >>> images_per_batch(1152 * 10 * 16), images_per_batch(2**30)
        (45, 1)
    """
    return max(1, min(MAX_BATCH, MAX_VOTES // votes))


@torch.no_grad()
def diagnose_layers(
    model: nn.Module, batches: Iterable[Tensor], names: Collection[str] | None = None
) -> tuple[LayerDiagnostics, ...]:
    """Diagnose the routing layers of a classifier over batches of images.

    Each batch passes through the network once, and once more per layer with uniform coupling in that layer.

    Args:
        model: The network.
        batches: Batches of images, each [B, C, H, W].
        names: Layers to diagnose; by default all.

    Shape:
        batches: images [B, C, H, W].

    Returns:
        One entry per layer, in the order of the forward pass.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> [layer.name for layer in diagnose_layers(model, [images])]
        ['head']
    """
    layers: dict[str, Any] = routing_layers(model)
    if names is not None:
        layers = {name: layers[name] for name in names}
    sums: dict[str, _Sums] = {}
    total = 0
    for images in batches:
        total += len(images)
        with record_inputs(layers) as received:
            usual = model(images).activations.argmax(dim=-1)  # [B]
        for name, calls in received.items():
            layer = layers[name]
            trace = trace_calls(layer, calls)
            window = layer.window(calls[-1][0]) if hasattr(layer, "window") else None
            with uniform_routing(layer) as uniform:
                other = _untied_argmax(model(images).activations)  # [B]
            changed = float((other != usual).sum()) if _is_uniform(uniform[-1].coupling) else None
            sums.setdefault(name, _Sums(trace)).add(trace, window, len(images), changed)
    return tuple(each.layer(name, total) for name, each in sums.items())


class _Sums:
    """Sums over the batches for one layer."""

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

    def layer(self, name: str, count: int) -> LayerDiagnostics:
        return LayerDiagnostics(
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


def _is_uniform(coupling: Tensor) -> bool:
    """Return whether the coupling [..., J] is uniform up to rounding."""
    return bool((coupling.amax(dim=-1) <= 1.0001 * coupling.amin(dim=-1)).all())


def _untied_argmax(activations: Tensor) -> Tensor:
    """Return the most active class of each image [B], or -1 if two are tied up to rounding."""
    if activations.shape[1] == 1:
        return activations.argmax(dim=-1)
    best = activations.topk(2, dim=-1)
    tied = best.values[:, 0] - best.values[:, 1] <= 1e-6 * best.values[:, 0].abs()
    return best.indices[:, 0].masked_fill(tied, -1)
