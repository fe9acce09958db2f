"""Snapshots of a network's routing: on images of a data set, or on the same few images after each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import Augment, BatchLoader, ImageDataset, to_float
from torchcaps.diagnostics.gradients import gradient_coherence, gradient_norms
from torchcaps.diagnostics.history import Row
from torchcaps.diagnostics.hooks import eval_mode
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
# Number of batches whose gradients are compared, and of the images in each: about as much work again.
COHERENCE_BATCHES, COHERENCE_IMAGES = 4, 16


@dataclass(frozen=True)
class Snapshot:
    """Diagnostics of a network at one moment.

    Attributes:
        data: Name of the data set.
        split: Its split.
        count: Number of images.
        layers: The routing layers in the order of the forward pass; the last one routes to the classes.
        gradient_norms: Norm of the loss gradient per module.
        gradient_coherence: Mean cosine between the loss gradients of four batches per module.
    """

    data: str
    split: str
    count: int
    layers: tuple[LayerDiagnostics, ...]
    gradient_norms: dict[str, float]
    gradient_coherence: dict[str, float] = field(default_factory=dict)

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
        gradients = {"gradient_norm": self.gradient_norms, "gradient_coherence": self.gradient_coherence}
        return rows + [
            (epoch, name, None, measure, value) for measure, each in gradients.items() for name, value in each.items()
        ]


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
        loss: Loss of the gradients; by default the model's own. Norms are computed on the first batch.
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
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
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
        loss = loss or _default_loss(model)
        norms = gradient_norms(model, loss, first, chosen.labels[:size].to(device))
        some = data.batch(_spaced(len(data), min(total, COHERENCE_BATCHES * COHERENCE_IMAGES)))
        coherence = gradient_coherence(model, loss, _dealt(to_float(some.images.to(device)), some.labels.to(device)))
    return Snapshot(data.name, data.split, total, layers, norms, coherence)


class EpochDiagnostics:
    """Diagnoses a network on the same 16 images after each epoch, without changing its state.

    The class layer sees all images; a layer below it sees as many as keep the number of its votes small. The coherence
    of gradients is that of four batches of 16 images.

    Args:
        data: Data set of the images; they are evenly spaced in it.
        augment: Augmentation of the training; only its crop is applied.

    Example:
        >>> from torchcaps.data import Augment, load_data
        >>> diagnostics = EpochDiagnostics(load_data("digits", "train"), Augment())
    """

    def __init__(self, data: ImageDataset, augment: Augment) -> None:
        self.data = data.subset(_spaced(len(data), EPOCH_IMAGES))
        self.images, self.labels, *_ = _load(self.data, augment)
        self.images_of_gradients, self.labels_of_gradients, *_ = _load(
            data.subset(_spaced(len(data), COHERENCE_BATCHES * COHERENCE_IMAGES)), augment
        )

    def __call__(self, model: nn.Module, loss: nn.Module) -> Snapshot:
        """Diagnose the network as it is.

        Args:
            model: The network.
            loss: Loss of the gradients.

        Returns:
            The snapshot.
        """
        parameter = next(model.parameters())
        images, labels = self.images.to(parameter), self.labels.to(parameter.device)
        layers: list[LayerDiagnostics] = []
        with eval_mode(model), eval_mode(loss):
            norms = gradient_norms(model, loss, images, labels)
            dealt = _dealt(self.images_of_gradients.to(parameter), self.labels_of_gradients.to(parameter.device))
            coherence = gradient_coherence(model, loss, dealt)
            votes = layer_votes(model, images[:1])
            for name, size in votes.items():
                count = EPOCH_IMAGES if name == list(votes)[-1] else max(EPOCH_FEWEST, EPOCH_WORK // size)
                some = images[_spaced(len(images), count)]
                layers += diagnose_layers(model, some.split(images_per_batch(size)), [name])
        return Snapshot(self.data.name, self.data.split, len(images), tuple(layers), norms, coherence)


def _spaced(total: int, count: int) -> Tensor:
    """Return `count` evenly spaced indices below `total`, or all of them if there are fewer."""
    return torch.linspace(0, total - 1, min(count, total)).round().long()


def _load(data: ImageDataset, augment: Augment) -> Sequence[Tensor]:
    """Return all images of a small data set, cropped, and their labels."""
    return next(iter(BatchLoader(data, len(data), augment=augment)))


def _dealt(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Deal images out to the batches in turn: a sorted data set gives each batch all classes."""
    batches = [(images[n::COHERENCE_BATCHES], labels[n::COHERENCE_BATCHES]) for n in range(COHERENCE_BATCHES)]
    return [batch for batch in batches if len(batch[0])]


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
