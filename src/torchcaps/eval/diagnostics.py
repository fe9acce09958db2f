"""What routing does in a network: how it decides, whether that changes an answer, which capsules are never used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import ImageData, to_float
from torchcaps.errors import ConfigError
from torchcaps.eval.evaluate import Progress
from torchcaps.models import ImageModel
from torchcaps.nn import LOSSES, SpreadLoss
from torchcaps.nn.watch import at_rest, gradient_norms, routed_evenly, routing_layers, watching
from torchcaps.ops.diagnostics import DEAD, STARVED, coupling_entropy, logit_change
from torchcaps.types import Trace

# Numbers that the votes of a batch may have in a layer: with what is computed from them, a few hundred MB. And those of
# all batches, where it is not said how many images to take: half a minute on one core.
ROOM, WORK = 2**23, 2**25
BATCH, FEWEST, MOST = 64, 16, 256


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


@dataclass(frozen=True)
class Diagnosis:
    """All routing layers of a network in the order of the pass, the last one being that of the classes."""

    data: str
    split: str
    count: int
    layers: tuple[LayerDiagnosis, ...]
    gradient_norms: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Everything, ready for JSON, in which there is no NaN: it becomes None."""
        layers = [{**asdict(layer), "dead": layer.dead, "starved": layer.starved} for layer in self.layers]
        return _clean({**asdict(self), "layers": layers})


def diagnose(
    model: ImageModel,
    data: ImageData,
    *,
    limit: int | None = None,
    loss: nn.Module | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Watch the routing layers of a model on images of a data set, evenly spaced in it, at most `limit`.

    Without a limit 256 are taken, or fewer, down to 16, where a layer has many votes.
    Gradient norms are those of `loss`, by default the model's own, on the first batch of them. Batches are as large as
    the votes of the largest layer allow. `progress(done, total)` is called after each batch. A model without classes
    has neither predictions nor that loss: nothing is found there.

    >>> from torchcaps import create_model, data
    >>> found = diagnose(create_model("capsnet_small"), data.load_data("digits", "val"), limit=4)
    >>> [(layer.name, len(layer.entropy), layer.parents) for layer in found.layers]
    [('head', 3, 10)]
    """
    if len(data) == 0 or (limit is not None and limit < 1):
        raise ConfigError(f"data: expected at least one image, got {len(data)} and a limit of {limit}")
    if not model.classifies:
        return Diagnosis(data.name, data.split, 0, (), {})
    device = next(model.parameters()).device
    with at_rest(model):
        votes = _votes(model, to_float(data.batch([0]).images.to(device)))
        size = max(1, min(BATCH, ROOM // votes))
        count = max(FEWEST, min(MOST, WORK // votes)) if limit is None else limit
        chosen = data.batch(torch.linspace(0, len(data) - 1, min(count, len(data))).round().long())
        total = len(chosen.images)
        sums: dict[str, _Sums] = {}
        for start in range(0, total, size):
            images = to_float(chosen.images[start : start + size].to(device))  # [B, C, H, W]
            _add_batch(model, images, sums)
            if progress is not None:
                progress(start + len(images), total)
        first = to_float(chosen.images[:size].to(device))
        norms = gradient_norms(model, loss or _own_loss(model), first, chosen.labels[:size].to(device))
    layers = tuple(found.layer(name, total) for name, found in sums.items())
    return Diagnosis(data.name, data.split, total, layers, norms)


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

    def add(self, trace: Trace, window: Any, count: int, changed: float | None) -> None:
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


@torch.no_grad()
def _add_batch(model: ImageModel, images: Tensor, sums: dict[str, _Sums]) -> None:
    layers: dict[str, Any] = routing_layers(model)
    with watching(layers) as received:
        usual = model(images).activations.argmax(dim=-1)  # [B]
    for name, args in received.items():
        layer = layers[name]
        trace = layer.trace(*args)
        window = layer.window(*args) if hasattr(layer, "window") else None
        with routed_evenly(layer) as even:
            other = _decided(model(images).activations)  # [B]
        changed = float((other != usual).sum()) if _is_even(even[-1].coupling) else None
        sums.setdefault(name, _Sums(trace)).add(trace, window, len(images), changed)


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


@torch.no_grad()
def _votes(model: ImageModel, image: Tensor) -> int:
    """How many numbers the votes for one image are in the largest routing layer."""
    layers: dict[str, Any] = routing_layers(model)
    with watching(layers) as received:
        model(image)
    return max((layers[name].trace(*args).votes.numel() for name, args in received.items()), default=1)


def _own_loss(model: ImageModel) -> nn.Module:
    loss = LOSSES[model.loss]().eval()
    # A trained network is held to the margin at the end of its growth.
    if isinstance(loss, SpreadLoss):
        loss.step.fill_(loss.steps)
    return loss


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
