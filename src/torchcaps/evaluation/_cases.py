"""The images of a test set as the metrics need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.evaluation._weighted import Counts, calibration_error, mean_defined, rank_metrics
from torchcaps.evaluation.predictions import predict_labels
from torchcaps.nn import log_probabilities

TOP = (3, 5)


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of one class against all others; None where one is not defined, as for a class without test images.

    Attributes:
        name: Name of the class.
        support: Number of test images of the class.
        predicted: Number of images that are predicted as the class.
        precision: Share of the predictions that are correct; 0 if the class is never predicted.
        recall: Share of the images that are found.
        f1: Harmonic mean of precision and recall.
        roc_auc: Area under the ROC curve of the class's probability.
        average_precision: Average precision of the class's probability.
    """

    name: str
    support: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    roc_auc: float | None
    average_precision: float | None


class Cases:
    """Labels, predictions and probabilities of all images.

    Args:
        activations: Activations [N, J].
        labels: Labels, [N] or [N, K].
        temperature: Temperature of the probabilities; None for 1.
    """

    def __init__(self, activations: Tensor, labels: Tensor, temperature: float | None) -> None:
        self.single = labels.dim() == 1
        columns = labels.unsqueeze(1) if self.single else labels  # [N, K]
        predicted = predict_labels(activations, columns.shape[1]).view_as(columns)  # [N, K]
        classes = activations.shape[1]
        self.targets = F.one_hot(columns, classes).sum(dim=1).bool()  # [N, J]
        self.predicted = F.one_hot(predicted, classes).sum(dim=1).bool()  # [N, J]
        self.correct = (self.targets == self.predicted).all(dim=1)  # [N]
        self.scores = activations.double()  # [N, J]
        # Metrics that are a mean over the images.
        self.means = {"accuracy": self.correct.double()}
        if self.single:
            self._add_probabilities(labels, 1.0 if temperature is None else temperature)
        else:
            self.means["hamming_loss"] = (self.targets != self.predicted).double().mean(dim=1)  # [N]

    def _add_probabilities(self, labels: Tensor, temperature: float) -> None:
        for k in TOP:
            if k < self.scores.shape[1]:
                found = (self.scores.topk(k, dim=1).indices == labels[:, None]).any(dim=1)
                self.means[f"top_{k}_accuracy"] = found.double()
        logs = log_probabilities(self.scores, temperature)  # [N, J]
        self.scores = logs.exp()
        self.means["log_loss"] = -logs.gather(1, labels[:, None]).squeeze(1)  # [N]
        self.means["brier"] = (self.scores - self.targets.double()).square().sum(dim=1)  # [N]

    @property
    def majority(self) -> float | None:
        """Share of the most frequent class; None with several labels per image."""
        return float(self.targets.double().mean(dim=0).max()) if self.single else None

    def by_count(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the metrics that are means or ratios of counts, [R] for weights [R, N]."""
        counts = Counts.of(self.targets, self.predicted, weights)
        found = {name: weights @ values / weights.sum(dim=1) for name, values in self.means.items()}
        found |= counts.averages()
        if self.single:
            found |= {"balanced_accuracy": found["recall_macro"], **counts.agreement()}
            confidence = self.scores.max(dim=1).values  # [N]
            found["ece"] = calibration_error(confidence, self.correct, weights)
        return found

    def by_rank(self, weights: Tensor) -> dict[str, Tensor]:
        """Return ROC-AUC and average precision, means over the classes, [R] for weights [R, N]."""
        areas, precisions = self.ranks(weights)
        return {"roc_auc": mean_defined(areas), "average_precision": mean_defined(precisions)}

    def ranks(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return ROC-AUC and average precision of each class, [R, J] for weights [R, N]."""
        columns = zip(self.scores.unbind(1), self.targets.unbind(1), strict=True)
        areas, precisions = zip(*(rank_metrics(*column, weights) for column in columns), strict=True)
        return torch.stack(areas, dim=1), torch.stack(precisions, dim=1)

    def per_class(self, names: Sequence[str]) -> tuple[ClassMetrics, ...]:
        """Return the metrics of every class."""
        once = torch.ones(1, len(self.targets), dtype=torch.float64)  # [1, N]
        counts = Counts.of(self.targets, self.predicted, once)
        values = (counts.precision, counts.recall, counts.f1, *self.ranks(once))  # each [1, J]
        return tuple(
            ClassMetrics(name, int(counts.support[0, j]), int(counts.predicted[0, j]), *_known(values, j))
            for j, name in enumerate(names)
        )


def _known(values: Sequence[Tensor], place: int) -> list[float | None]:
    numbers = [float(value[0, place]) for value in values]
    return [number if number == number else None for number in numbers]
