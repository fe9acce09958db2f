"""Evaluation of a model on a data set: accuracy and confusion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from torchcaps.data import ImageDataset, crop, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.metrics import Metrics, compute_metrics
from torchcaps.evaluation.predictions import is_correct, predict_labels
from torchcaps.models import ImageModel
from torchcaps.nn import log_probabilities
from torchcaps.types import Progress


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions of a model on every image of a data set.

    Attributes:
        data: The data set.
        activations: Activations of the class capsules [N, J].
        labels: True labels [N], or [N, 2] for images with two labels.
        confusion: Counts [J, J]; rows are true classes, columns predicted ones. With two labels per image, a label
            that is predicted counts on the diagonal, and a missed one in the column of the other prediction.
        seconds: Time of the evaluation.
        loss: Objective of a model that does not classify; it has no accuracy and an empty confusion.
        temperature: Temperature of the class probabilities; None if none was fitted.
    """

    data: ImageDataset
    activations: Tensor  # [N, J]
    labels: Tensor  # [N] or [N, 2]
    confusion: Tensor  # [J, J]
    seconds: float
    loss: float | None = None
    temperature: float | None = None

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities [N, J]."""
        return log_probabilities(self.activations, 1.0 if self.temperature is None else self.temperature).exp()

    @cached_property
    def metrics(self) -> Metrics:
        """All metrics with their confidence intervals."""
        self._check_classifier("metrics")
        return compute_metrics(self.activations, self.labels, self.data.class_names, temperature=self.temperature)

    def _check_classifier(self, what: str) -> None:
        if self.loss is not None:
            raise ConfigError(f"{what}: expected a classifier, got a model with its own objective")

    @property
    def predictions(self) -> Tensor:
        """Predicted labels, [N] or [N, 2]."""
        return predict_labels(self.activations, self.data.num_labels)

    @property
    def correct(self) -> Tensor:
        """Whether each image is classified correctly, [N]."""
        return is_correct(self.activations, self.labels)

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.data)

    @property
    def accuracy(self) -> float:
        """Share of images that are classified correctly; with two labels, both must be predicted."""
        self._check_classifier("accuracy")
        return int(self.correct.sum()) / self.count

    @property
    def error(self) -> float:
        """One minus the accuracy."""
        return 1 - self.accuracy

    @property
    def per_class(self) -> dict[str, float | None]:
        """Accuracy on each class by name; None for a class without images."""
        rows = zip(
            self.data.class_names, self.confusion.diagonal().tolist(), self.confusion.sum(1).tolist(), strict=True
        )
        return {name: correct / total if total else None for name, correct, total in rows}

    @property
    def headline(self) -> str:
        """The main result with its name."""
        return f"loss {self.loss:.4g}" if self.loss is not None else f"accuracy {self.accuracy:.2%}"

    def summary(self) -> dict[str, Any]:
        """Return everything but the single images as plain values for JSON.

        Returns:
            A dictionary.
        """
        about = {"data": self.data.name, "split": self.data.split, "count": self.count}
        if self.loss is not None:
            return {**about, "loss": self.loss, "seconds": round(self.seconds, 3)}
        return {
            **about,
            "accuracy": self.accuracy,
            "error": self.error,
            "per_class": self.per_class,
            "class_names": list(self.data.class_names),
            "confusion": self.confusion.tolist(),
            "metrics": self.metrics.to_json(),
            "seconds": round(self.seconds, 3),
        }


def evaluate(
    model: ImageModel,
    data: ImageDataset,
    *,
    batch_size: int = 256,
    crops: Sequence[tuple[int, int]] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a model on a data set, without augmentation and without gradients.

    With one label per image the prediction is argmax_j a_j; with two, the two most active classes.

    Args:
        model: The model.
        data: The images.
        batch_size: Number of images per batch.
        crops: Offsets (down, right) from the centre at which images larger than the model's input are cropped; the
            activations are averaged (`data.CROPS_13`, Hinton et al. 2018, section 5).
        progress: Called with (done, total) after each batch.

    Returns:
        The evaluation; that of a model that does not classify has its objective, computed with a fixed seed.

    Raises:
        ConfigError: If the data set is empty, or has another number of classes than the model.

    Example:
        >>> from torchcaps import create_model, data
        >>> digits = data.load_data("digits", "test").subset(range(20))
        >>> evaluate(create_model("cnn_small"), digits).confusion.sum()
        tensor(20)
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size: expected a count of at least 1, got {batch_size}")
    if len(data) == 0:
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
    if data.num_classes != model.num_classes:
        raise ConfigError(
            f"data: expected {model.num_classes} classes, as the model has, got {data.num_classes} ({data.name})"
        )
    started = time.perf_counter()
    activations, labels = _predict(model, data, batch_size, crops, progress)  # [N, J], [N] or [N, 2]
    if not model.is_classifier:
        loss = _objective(model, data, batch_size)
        return Evaluation(data, activations, labels, torch.zeros(0, 0), time.perf_counter() - started, loss)
    predicted, true = predict_labels(activations, data.num_labels), labels
    if data.num_labels > 1:
        predicted, true = _matched(predicted, true)
    confusion = multiclass_confusion_matrix(predicted.flatten(), true.flatten(), model.num_classes)  # [J, J]
    return Evaluation(
        data, activations, labels, confusion, time.perf_counter() - started, temperature=model.temperature
    )


def _matched(predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Order both [N, 2] such that equal labels are in the same column."""
    predicted, true = predicted.sort(dim=1).values, true.sort(dim=1).values
    # After sorting, only the smaller label of one can be the larger of the other.
    crossed = (predicted[:, 0] == true[:, 1]) | (predicted[:, 1] == true[:, 0])  # [N]
    return torch.where(crossed[:, None], predicted.flip(1), predicted), true


@torch.inference_mode()
def _predict(
    model: ImageModel,
    data: ImageDataset,
    batch_size: int,
    crops: Sequence[tuple[int, int]] | None,
    progress: Progress | None,
) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    parts: list[Tensor] = []
    labels: list[Tensor] = []
    done = 0
    try:
        for batch in data.batches(batch_size):
            images = to_float(batch.images.to(device))  # [B, C, H, W]
            views = [images] if crops is None else [crop(images, model.image_shape[-1], *place) for place in crops]
            seen = torch.stack([model(view).activations for view in views])  # [views, B, J]
            parts.append(seen.mean(dim=0).cpu())  # [B, J]
            labels.append(batch.labels)
            done += len(images)
            if progress is not None:
                progress(done, len(data))
    finally:
        model.train(was_training)
    return torch.cat(parts), torch.cat(labels)  # [N, J], [N] or [N, 2]


@torch.inference_mode()
def _objective(model: ImageModel, data: ImageDataset, batch_size: int) -> float:
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    total = 0.0
    for batch in data.batches(batch_size):
        total += float(model.objective(to_float(batch.images.to(device)), generator)) * len(batch.images)
    return total / len(data)
