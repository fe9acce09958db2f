"""Snapshots of a network's routing: on images of a data set, or on the same few images after each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import Augment, BatchLoader, ImageDataset, to_float
from torchcaps.diagnostics.history import Row
from torchcaps.diagnostics.hooks import eval_mode, gradient_norms
from torchcaps.diagnostics.layers import LayerDiagnostics, diagnose_layers, images_per_batch, layer_votes
from torchcaps.errors import ConfigError
from torchcaps.models import ImageModel
from torchcaps.nn import LOSSES, SpreadLoss
from torchcaps.types import Progress

# Votes in a layer, summed over the images, that `diagnose` computes by default: half a minute on one core.
WORK = 2**25
FEWEST, MOST = 16, 256
# The same per epoch of a training: about as much work as one training step.
EPOCH_IMAGES, EPOCH_FEWEST, EPOCH_WORK = 16, 4, 2**21


@dataclass(frozen=True)
class Snapshot:
    """Diagnostics of a network at one moment.

    Attributes:
        data: Name of the data set.
        split: Its split.
        count: Number of images.
        layers: The routing layers in the order of the forward pass; the last one routes to the classes.
        gradient_norms: Norm of the loss gradient per module.
    """

    data: str
    split: str
    count: int
    layers: tuple[LayerDiagnostics, ...]
    gradient_norms: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; NaN becomes None.

        Returns:
            A nested dictionary.
        """
        layers = [{**asdict(layer), "dead": layer.dead, "starved": layer.starved} for layer in self.layers]
        return _without_nan({**asdict(self), "layers": layers})

    def summary(self) -> dict[str, float]:
        """Return the columns of metrics.csv.

        Returns:
            `entropy` and `dead` of the class layer (missing without routing), and `gradient_norm` of the whole network.
        """
        last = {"entropy": self.layers[-1].entropy[-1], "dead": self.layers[-1].dead} if self.layers else {}
        return {**last, "gradient_norm": math.hypot(*self.gradient_norms.values())}

    def rows(self, epoch: int) -> list[Row]:
        """Return the rows of diagnostics.csv: one per layer, iteration and measure.

        `logit_change` of iteration r is the change from iteration r - 1 to r.

        Args:
            epoch: Number of the epoch, from 1.

        Returns:
            The rows; a measure that is not known has none.
        """
        rows: list[Row] = []
        for layer in self.layers:
            rows += [(epoch, layer.name, place + 1, "entropy", value) for place, value in enumerate(layer.entropy)]
            rows += [
                (epoch, layer.name, place + 2, "logit_change", value) for place, value in enumerate(layer.logit_change)
            ]
            shares = {"changed": layer.changed, "dead": layer.dead, "starved": layer.starved}
            rows += [(epoch, layer.name, None, name, share) for name, share in shares.items() if share is not None]
        return rows + [(epoch, name, None, "gradient_norm", norm) for name, norm in self.gradient_norms.items()]


def diagnose(
    model: ImageModel,
    data: ImageDataset,
    *,
    limit: int | None = None,
    loss: nn.Module | None = None,
    progress: Progress | None = None,
) -> Snapshot:
    """Measure what the routing layers of a model do with images of a data set.

    The images are evenly spaced in the data set. A model that does not classify has no layers in its snapshot.

    Args:
        model: The network.
        data: The images.
        limit: Number of images; by default 256, or fewer (at least 16) for layers with many votes.
        loss: Loss of the gradient norms, computed on the first batch; by default the model's own.
        progress: Called with (done, total) after each batch.

    Returns:
        The snapshot.

    Raises:
        ConfigError: If the data set is empty or `limit` is less than 1.

    Example:
        >>> from torchcaps import create_model, data
        >>> snapshot = diagnose(create_model("capsnet_small"), data.load_data("digits", "val"), limit=4)
        >>> [(layer.name, len(layer.entropy), layer.parents) for layer in snapshot.layers]
        [('head', 3, 10)]
    """
    if len(data) == 0:
        raise ConfigError(f"data: expected at least one image, got none ({data.name}, {data.split})")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: expected at least 1, got {limit}")
    if not model.is_classifier:
        return Snapshot(data.name, data.split, 0, (), {})
    device = next(model.parameters()).device
    with eval_mode(model):
        votes = max(layer_votes(model, to_float(data.batch([0]).images.to(device))).values(), default=1)
        size = images_per_batch(votes)
        count = max(FEWEST, min(MOST, WORK // votes)) if limit is None else limit
        chosen = data.batch(_spaced(len(data), count))
        total = len(chosen.images)

        def batches() -> Iterator[Tensor]:
            for start in range(0, total, size):
                yield to_float(chosen.images[start : start + size].to(device))  # [B, C, H, W]
                if progress is not None:
                    progress(min(start + size, total), total)

        layers = diagnose_layers(model, batches())
        first = to_float(chosen.images[:size].to(device))
        norms = gradient_norms(model, loss or _default_loss(model), first, chosen.labels[:size].to(device))
    return Snapshot(data.name, data.split, total, layers, norms)


class EpochDiagnostics:
    """Diagnoses a network on the same 16 images after each epoch, without changing its state.

    The class layer sees all images; a layer below it sees as many as keep the number of its votes small.

    Args:
        data: Data set of the images; they are evenly spaced in it.
        augment: Augmentation of the training; only its crop is applied.

    Example:
        >>> from torchcaps.data import Augment, load_data
        >>> diagnostics = EpochDiagnostics(load_data("digits", "train"), Augment())
    """

    def __init__(self, data: ImageDataset, augment: Augment) -> None:
        some = data.subset(_spaced(len(data), EPOCH_IMAGES))
        self.data = some
        self.images, self.labels, *_ = next(iter(BatchLoader(some, EPOCH_IMAGES, augment=augment)))

    def __call__(self, model: nn.Module, loss: nn.Module) -> Snapshot:
        """Diagnose the network as it is.

        Args:
            model: The network.
            loss: Loss of the gradient norms.

        Returns:
            The snapshot.
        """
        parameter = next(model.parameters())
        images, labels = self.images.to(parameter), self.labels.to(parameter.device)
        layers: list[LayerDiagnostics] = []
        with eval_mode(model), eval_mode(loss):
            norms = gradient_norms(model, loss, images, labels)
            votes = layer_votes(model, images[:1])
            for name, size in votes.items():
                count = EPOCH_IMAGES if name == list(votes)[-1] else max(EPOCH_FEWEST, EPOCH_WORK // size)
                some = images[_spaced(len(images), count)]
                layers += diagnose_layers(model, some.split(images_per_batch(size)), [name])
        return Snapshot(self.data.name, self.data.split, len(images), tuple(layers), norms)


def _spaced(total: int, count: int) -> Tensor:
    """Return `count` evenly spaced indices below `total`, or all of them if there are fewer."""
    return torch.linspace(0, total - 1, min(count, total)).round().long()


def _default_loss(model: ImageModel) -> nn.Module:
    loss = LOSSES[model.default_loss]().eval()
    # A trained network is measured against the final margin.
    if isinstance(loss, SpreadLoss):
        loss.step.fill_(loss.steps)
    return loss


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
