"""Classification metrics with confidence intervals.

Every metric is a function of the images and of a weight per image. Weights of 1 give its value. The weights of a
bootstrap sample are the numbers of times that each image was drawn; they give the value on that sample. All samples of
a chunk are computed at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.evaluation._cases import Cases, ClassMetrics
from torchcaps.evaluation.intervals import CONFIDENCE, Interval, bootstrap_weights, percentiles, wilson

# The metrics in the order of tables, with their titles.
NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "hamming_loss": "Hamming loss",
    "precision_macro": "precision (macro)",
    "precision_weighted": "precision (weighted)",
    "recall_macro": "recall (macro)",
    "recall_weighted": "recall (weighted)",
    "f1_macro": "F1 (macro)",
    "f1_weighted": "F1 (weighted)",
    "roc_auc": "ROC-AUC (macro)",
    "average_precision": "average precision (macro)",
    "kappa": "Cohen's kappa",
    "mcc": "Matthews correlation",
    "top_3_accuracy": "top-3 accuracy",
    "top_5_accuracy": "top-5 accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "ece": "calibration error (ECE)",
}
# Metrics that are not shown in %.
PLAIN = ("roc_auc", "average_precision", "kappa", "mcc", "log_loss", "brier", "ece")
RESAMPLES, RANK_RESAMPLES = 1000, 200
# Most images times classes times samples for intervals of metrics that sort the images of each class.
RANK_CELLS = 200_000_000
# Names in a note.
SHOWN = 10


def format_metric(name: str, value: float | None, sign: str = "") -> str:
    """Format a metric for a table.

    Args:
        name: Name of the metric.
        value: Its value.
        sign: "+" for differences.

    Returns:
        The text.

    Example:
        >>> format_metric("f1_macro", 0.5), format_metric("ece", 0.5), format_metric("ece", None)
        ('50.00%', '0.5000', 'not defined')
    """
    if value is None:
        return "not defined"
    return f"{value:{sign}.4f}" if name in PLAIN else f"{value:{sign}.2%}"


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        value: The value; None if it is not defined for these labels and predictions.
        interval: Confidence interval of 95 %; None if it was not computed.
    """

    value: float | None
    interval: Interval | None


@dataclass(frozen=True)
class Metrics:
    """The metrics of a model on a test set.

    Attributes:
        values: Each metric by name, in the order of tables.
        per_class: The metrics of each class.
        majority: Accuracy of always predicting the most frequent class of the test set; None with several labels per
            image.
        temperature: Temperature of the probabilities; None if none was fitted.
        uncalibrated: Log loss, Brier score and calibration error at temperature 1, if another one was fitted.
        notes: What is not defined or not reliable, one sentence each.
    """

    values: dict[str, Metric]
    per_class: tuple[ClassMetrics, ...]
    majority: float | None
    temperature: float | None
    uncalibrated: dict[str, float]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary; a metric is {"value": ..., "interval": [low, high]}.
        """
        values = {
            name: {"value": metric.value, "interval": None if metric.interval is None else list(metric.interval)}
            for name, metric in self.values.items()
        }
        rows, notes = [asdict(row) for row in self.per_class], list(self.notes)
        return {**asdict(self), "values": values, "per_class": rows, "notes": notes, "confidence": CONFIDENCE}


def compute_metrics(
    activations: Tensor,
    labels: Tensor,
    class_names: Sequence[str],
    *,
    temperature: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Metrics:
    """Compute all metrics of a classifier.

    With one label per image these are accuracy, balanced accuracy, precision, recall and F1 (macro and weighted),
    Cohen's kappa, Matthews correlation, ROC-AUC and average precision (macro, one class against the others), top-k
    accuracy, log loss, Brier score and expected calibration error. With several labels per image the accuracy is the
    share of images with all labels correct, and the Hamming loss, the share of wrong labels, takes the place of the
    metrics that need single labels. Macro averages are over the classes with test images.

    The interval of the accuracy is Wilson's. The others are percentiles of bootstrap samples of the images; those of
    ROC-AUC and average precision use 200 of the samples, and are left out for very many images and classes.

    Args:
        activations: Activations of the class capsules.
        labels: True labels.
        class_names: Names of the classes.
        temperature: Temperature of the probabilities; None for 1, with a note that it was not fitted.
        resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap samples.

    Shape:
        activations: [N, J]; labels: [N] or [N, K].

    Returns:
        The metrics.

    Raises:
        ConfigError: If there are no images.

    Example:
        >>> activations = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.4, 0.6], [0.7, 0.2]])
        >>> metrics = compute_metrics(activations, torch.tensor([0, 0, 1, 1]), ["cat", "dog"])
        >>> metrics.values["accuracy"].value, metrics.per_class[0].recall
        (0.75, 1.0)
    """
    if not len(labels):
        raise ConfigError("labels: expected at least one image, got 0")
    cases = Cases(activations, labels, temperature)
    once = torch.ones(1, len(labels), dtype=torch.float64)  # [1, N]
    values = {**cases.by_count(once), **cases.by_rank(once)}
    samples: dict[str, list[Tensor]] = {name: [] for name in values}
    ranked = min(RANK_RESAMPLES, RANK_CELLS // activations.numel())
    for weights in bootstrap_weights(len(labels), resamples, seed):
        ranks = cases.by_rank(weights[:ranked]) if ranked > 0 else {}
        ranked -= len(weights)
        for name, sample in {**cases.by_count(weights), **ranks}.items():
            samples[name].append(sample)
    metrics = {name: _metric(value, samples[name]) for name, value in values.items()}
    metrics["accuracy"] = Metric(metrics["accuracy"].value, wilson(int(cases.correct.sum()), len(labels)))
    ordered = {name: metrics[name] for name in NAMES if name in metrics}
    per_class = cases.per_class(class_names)
    plain = Cases(activations, labels, 1.0).by_count(once) if cases.single and temperature is not None else {}
    return Metrics(
        ordered,
        per_class,
        cases.majority,
        temperature,
        {name: float(plain[name]) for name in ("log_loss", "brier", "ece") if name in plain},
        tuple(_notes(ordered, per_class, single=cases.single, fitted=temperature is not None)),
    )


def _metric(value: Tensor, samples: Sequence[Tensor]) -> Metric:
    if not value.isfinite():
        return Metric(None, None)
    return Metric(float(value), percentiles(torch.cat(list(samples))) if samples else None)


def _notes(
    values: Mapping[str, Metric], per_class: Sequence[ClassMetrics], *, single: bool, fitted: bool
) -> Iterator[str]:
    absent = [row.name for row in per_class if not row.support]
    never = [row.name for row in per_class if row.support and not row.predicted]
    missed = [row.name for row in per_class if row.support and row.predicted and row.recall == 0]
    unknown = [NAMES[name] for name, metric in values.items() if metric.value is None]
    if absent:
        yield f"No test images of {join_names(absent)}; the averages leave {'it' if len(absent) == 1 else 'them'} out."
    if never:
        yield f"Never predicted: {join_names(never)}."
    if missed:
        yield f"Never found, predicted for images of other classes only: {join_names(missed)}."
    if unknown:
        yield f"Not defined for these labels and predictions: {join_names(unknown)}."
    if not single:
        yield "Log loss, Brier score and calibration error need one label per image."
    elif not fitted:
        yield "The probabilities are not calibrated: no temperature was fitted on a validation split (temperature 1)."


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in words, the first ten of many."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
