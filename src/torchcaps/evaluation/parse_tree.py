"""The protocol `parse_tree`: whether coupling depends on the image, and whether capsules starve with depth.

Mitterreiter, Koch, Giesen and Laue 2023, 'Why capsule neural networks do not scale': if routing built a parse tree for
each image, the coupling of a child would differ from image to image, and every capsule would get its share of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.models import ImageModel
from torchcaps.nn import CapsLinear
from torchcaps.types import Capsules, Progress

IMAGES = 500
# A parent is dead if its activation stays below DEAD, and starved if it gets less than STARVED of an even share of the
# coupling, as in `diagnostics`.
DEAD, STARVED = 0.05, 0.01


@torch.inference_mode()
def by_layer(model: ImageModel, data: ImageDataset, *, progress: Progress | None = None) -> ProtocolResult:
    """Measure the coupling of every dense capsule layer over many images.

    `varies` is the share of the variance of the coupling that is between images, not between children and parents: 0
    if the coupling is the same for all images. `starved` is the share of parents that get less than a hundredth of an
    even share of the coupling of active children, `dead` that of parents whose activation stays below 0.05.

    Args:
        model: The network.
        data: Test images.
        progress: Called with (done, total) after each batch.

    Returns:
        One row per layer, from the image to the classes.

    Raises:
        ConfigError: If the network has no dense capsule layer.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(8))
        >>> [row.name for row in by_layer(create_model("stacked_capsnet", depth=2), few).rows]
        ['layer 1', 'layer 2', 'classes']
    """
    layers = [module for module in model.modules() if isinstance(module, CapsLinear)]
    if not layers:
        raise ConfigError(f"run: expected a network with dense capsule layers, got {type(model).__name__}")
    seen: dict[nn.Module, list[Capsules]] = {layer: [] for layer in layers}
    handles = [layer.register_forward_pre_hook(lambda layer, args: seen[layer].append(args[0])) for layer in layers]
    was_training = model.training
    model.eval()
    try:
        for done, batch in enumerate(data.batches(100)):
            model(to_float(batch.images))
            if progress is not None:
                progress(min((done + 1) * 100, len(data)), len(data))
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    rows = []
    for number, layer in enumerate(layers, start=1):
        coupling, weight, activations = _routed(layer, seen[layer])
        name = "classes" if layer is model.head else f"layer {number}"
        rows.append(ProtocolRow(name, len(data), (*_shares(coupling, weight), _dead(activations))))
    question = "Does the coupling depend on the image, and do capsules starve?"
    columns = ("varies", "starved", "dead")
    return ProtocolResult("parse_tree", question, data.name, data.origin, columns, tuple(rows))


def _routed(layer: CapsLinear, batches: list[Capsules]) -> tuple[Tensor, Tensor, Tensor]:
    """Return coupling [N, I, J], activations of the children [N, I] and of the parents [N, J]."""
    coupling, activations, children = [], [], []
    for each in batches:
        trace = layer.trace(each)
        coupling.append(trace.coupling[-1])
        activations.append(layer(each).activations)
        children.append(each.flatten().activations)
    return torch.cat(coupling), torch.cat(children), torch.cat(activations)


def _shares(coupling: Tensor, weight: Tensor) -> tuple[float, float]:
    between = coupling.var(dim=0, unbiased=False).mean()
    total = coupling.var(unbiased=False)
    received = (weight[..., None] * coupling).sum(dim=(0, 1))  # [J]
    even = received.sum() / len(received)
    starved = (received < STARVED * even).float().mean()
    return float(between / total.clamp(min=1e-20)), float(starved)


def _dead(activations: Tensor) -> float:
    return float((activations.amax(dim=0) < DEAD).float().mean())


@PROTOCOLS.register("parse_tree")
def _parse_tree(run: TrainedRun, progress: Progress) -> ProtocolResult:
    return by_layer(run.load_model(), run.load_data("test").evenly_spaced(IMAGES), progress=progress)
