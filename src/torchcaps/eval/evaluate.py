"""How good a model is: accuracy, and which classes are taken for which."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from torchcaps.data import ImageData, crop, to_float
from torchcaps.errors import ConfigError
from torchcaps.models import ImageModel

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a model said about every image of a data set."""

    data: ImageData
    activations: Tensor  # [N, J]
    confusion: Tensor  # [J, J], rows are true classes, columns predicted ones
    seconds: float

    @property
    def predictions(self) -> Tensor:
        """The most active class of each image, [N]."""
        return self.activations.argmax(dim=-1)

    @property
    def right(self) -> Tensor:
        """Which predictions are right, [N]."""
        return self.predictions == self.data.labels

    @property
    def count(self) -> int:
        """How many images were tested."""
        return len(self.data)

    @property
    def accuracy(self) -> float:
        """The share of images whose class was found."""
        return int(self.confusion.trace()) / self.count

    @property
    def error(self) -> float:
        """One minus the accuracy."""
        return 1 - self.accuracy

    @property
    def per_class(self) -> dict[str, float | None]:
        """The accuracy on each class by name; None where the data have no image of it."""
        rows = zip(
            self.data.class_names, self.confusion.diagonal().tolist(), self.confusion.sum(1).tolist(), strict=True
        )
        return {name: right / total if total else None for name, right, total in rows}

    def summary(self) -> dict[str, Any]:
        """Everything but the single images, ready for JSON."""
        return {
            "data": self.data.name,
            "split": self.data.split,
            "count": self.count,
            "accuracy": self.accuracy,
            "error": self.error,
            "per_class": self.per_class,
            "class_names": list(self.data.class_names),
            "confusion": self.confusion.tolist(),
            "seconds": round(self.seconds, 3),
        }


def evaluate(
    model: ImageModel,
    data: ImageData,
    *,
    batch_size: int = 256,
    crops: Sequence[tuple[int, int]] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run a model over a data set, without augmentation and without gradients.

    An image's class is the most active class capsule: argmax_j a_j. With `crops`, each (down, right) from the centre,
    images larger than the model takes are seen at all these places and the activations are averaged
    (`data.CROPS_13`, Hinton et al. 2018, section 5). `progress(done, total)` is called after each batch.

    >>> from torchcaps import create_model, data
    >>> digits = data.load_data("digits", "test").subset(range(20))
    >>> evaluate(create_model("cnn_small"), digits).confusion.sum()
    tensor(20)
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size: expected a count of at least 1, got {batch_size}")
    if len(data) == 0:
        raise ConfigError(f"data: expected at least one image, got none ({data.name}, {data.split})")
    if data.num_classes != model.num_classes:
        raise ConfigError(
            f"data: expected {model.num_classes} classes, as the model has, got {data.num_classes} ({data.name})"
        )
    started = time.perf_counter()
    activations = _activations(model, data, batch_size, crops, progress)  # [N, J]
    confusion = multiclass_confusion_matrix(activations.argmax(dim=-1), data.labels, model.num_classes)  # [J, J]
    return Evaluation(data, activations, confusion, time.perf_counter() - started)


@torch.inference_mode()
def _activations(
    model: ImageModel,
    data: ImageData,
    batch_size: int,
    crops: Sequence[tuple[int, int]] | None,
    progress: Progress | None,
) -> Tensor:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    parts: list[Tensor] = []
    done = 0
    try:
        for images in data.images.split(batch_size):
            images = to_float(images.to(device))  # [B, C, H, W]
            views = [images] if crops is None else [crop(images, model.image_shape[-1], *place) for place in crops]
            seen = torch.stack([model(view).activations for view in views])  # [views, B, J]
            parts.append(seen.mean(dim=0).cpu())  # [B, J]
            done += len(images)
            if progress is not None:
                progress(done, len(data))
    finally:
        model.train(was_training)
    return torch.cat(parts)  # [N, J]
