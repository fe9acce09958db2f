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
from torchcaps.nn import answers, right_answers

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a model said about every image of a data set.

    Where it does not classify, `loss` is its own objective, the confusion is empty, and there is no accuracy.
    """

    data: ImageData
    activations: Tensor  # [N, J]
    labels: Tensor  # [N], or [N, 2] where two things are in an image
    # Rows are true classes, columns predicted ones; where there are two in an image, those that were found lie on the
    # diagonal and the missed ones in the columns of what was said instead.
    confusion: Tensor  # [J, J]
    seconds: float
    loss: float | None = None

    @property
    def predictions(self) -> Tensor:
        """The most active class of each image, [N]; the two most active, [N, 2], where two things are in an image."""
        return answers(self.activations, self.data.num_labels)

    @property
    def right(self) -> Tensor:
        """Which predictions are right, [N]."""
        return right_answers(self.activations, self.labels)

    @property
    def count(self) -> int:
        """How many images were tested."""
        return len(self.data)

    @property
    def accuracy(self) -> float:
        """The share of images whose class was found, or both classes where there are two: no half credit."""
        if self.loss is not None:
            raise ConfigError("accuracy: expected a model that classifies, got one with an objective of its own")
        return int(self.right.sum()) / self.count

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

    @property
    def words(self) -> str:
        """The one number that matters most, with its name."""
        return f"loss {self.loss:.4g}" if self.loss is not None else f"accuracy {self.accuracy:.2%}"

    def summary(self) -> dict[str, Any]:
        """Everything but the single images, ready for JSON."""
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

    An image's class is the most active class capsule: argmax_j a_j; where two things are in an image, both of the two
    most active ones must be right. With `crops`, each (down, right) from the centre,
    images larger than the model takes are seen at all these places and the activations are averaged
    (`data.CROPS_13`, Hinton et al. 2018, section 5). `progress(done, total)` is called after each batch. A model that
    does not classify is held to its own objective, with the same draws every time.

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
    activations, labels = _ask(model, data, batch_size, crops, progress)  # [N, J], [N] or [N, 2]
    if not model.classifies:
        loss = _objective(model, data, batch_size)
        return Evaluation(data, activations, labels, torch.zeros(0, 0), time.perf_counter() - started, loss)
    said, true = answers(activations, data.num_labels), labels
    if data.num_labels > 1:
        said, true = _matched(said, true)
    confusion = multiclass_confusion_matrix(said.flatten(), true.flatten(), model.num_classes)  # [J, J]
    return Evaluation(data, activations, labels, confusion, time.perf_counter() - started)


def _matched(said: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Both [N, 2] in an order in which what was found stands beside itself."""
    said, true = said.sort(dim=1).values, true.sort(dim=1).values
    # In order, only the smaller of one may be the larger of the other.
    crossed = (said[:, 0] == true[:, 1]) | (said[:, 1] == true[:, 0])  # [N]
    return torch.where(crossed[:, None], said.flip(1), said), true


@torch.inference_mode()
def _ask(
    model: ImageModel,
    data: ImageData,
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
def _objective(model: ImageModel, data: ImageData, batch_size: int) -> float:
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    total = 0.0
    for batch in data.batches(batch_size):
        total += float(model.objective(to_float(batch.images.to(device)), generator)) * len(batch.images)
    return total / len(data)
