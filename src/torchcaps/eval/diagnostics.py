"""What routing does in a network: how it decides, whether that changes an answer, which capsules are never used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import ImageData, to_float
from torchcaps.errors import ConfigError
from torchcaps.eval.evaluate import Progress
from torchcaps.models import ImageModel
from torchcaps.nn import LOSSES, SpreadLoss
from torchcaps.nn.diagnosis import LayerDiagnosis, diagnose_layers, layer_votes, room_for
from torchcaps.nn.watch import at_rest, gradient_norms

# Numbers that the votes of all images may have in a layer, where it is not said how many to take: half a minute on one
# core.
WORK = 2**25
FEWEST, MOST = 16, 256


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
        votes = max(layer_votes(model, to_float(data.batch([0]).images.to(device))).values(), default=1)
        size = room_for(votes)
        count = max(FEWEST, min(MOST, WORK // votes)) if limit is None else limit
        chosen = data.batch(torch.linspace(0, len(data) - 1, min(count, len(data))).round().long())
        total = len(chosen.images)

        def batches() -> Iterator[Tensor]:
            for start in range(0, total, size):
                yield to_float(chosen.images[start : start + size].to(device))  # [B, C, H, W]
                if progress is not None:
                    progress(min(start + size, total), total)

        layers = diagnose_layers(model, batches())
        first = to_float(chosen.images[:size].to(device))
        norms = gradient_norms(model, loss or _own_loss(model), first, chosen.labels[:size].to(device))
    return Diagnosis(data.name, data.split, total, layers, norms)


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
