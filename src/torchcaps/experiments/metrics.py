"""Metrics of reproductions: the columns of the published tables, computed from a finished run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from torchcaps._registry import Registry
from torchcaps.data import CROPS_13, load_data
from torchcaps.errors import ConfigError
from torchcaps.evaluation import PROTOCOLS, evaluate, evaluate_attack
from torchcaps.evaluation.adversarial import Method
from torchcaps.evaluation.protocols import OVERLAPS, bucket_name
from torchcaps.types import Progress

if TYPE_CHECKING:
    from torchcaps.train import Run

Compute = Callable[["Run", Progress], dict[str, float]]

# An iterative attack evaluates an image up to ten times per epsilon, so the metric uses the first test images only.
ATTACKED_IMAGES = 1000
EPSILONS = (0.1, 0.2)
# Words of columns in which lower numbers are better.
LOWER = ("error", "false wholes", "starved", "dead")
METHODS: tuple[Method, ...] = ("fgsm", "bim")


@dataclass(frozen=True)
class Metric:
    """A metric of a run.

    Attributes:
        columns: Names of its columns, in %.
        compute: Returns the columns that a run has; takes the run and a progress function.
    """

    columns: tuple[str, ...]
    compute: Compute


METRICS: Registry[Metric] = Registry("metric")


def with_direction(column: str) -> str:
    """Return the name of a column with an arrow: down if lower is better, up if higher is better.

    Args:
        column: Name of a column of a metric.

    Returns:
        The name with the arrow.

    Example:
        >>> with_direction("novel error"), with_direction("both correct")
        ('novel error ↓', 'both correct ↑')
    """
    if not column:
        return column
    return f"{column} {'↓' if is_lower_better(column) else '↑'}"


def is_lower_better(column: str) -> bool:
    """Return whether lower numbers of a column are better.

    Args:
        column: Name of a column of a metric.

    Returns:
        Whether it is an error or a share of something unwanted.

    Example:
        >>> is_lower_better("false wholes"), is_lower_better("accuracy")
        (True, False)
    """
    return any(word in column for word in LOWER)


def register_metric(name: str, *columns: str) -> Callable[[Compute], Compute]:
    """Register a function as a metric.

    Args:
        name: Name of the metric.
        *columns: Names of its columns, in %.

    Returns:
        A decorator.
    """

    def register(compute: Compute) -> Compute:
        METRICS.add(name, Metric(columns, compute))
        return compute

    return register


def _attack_column(method: Method, targeted: bool, epsilon: float) -> str:
    return f"accuracy, {method.upper()} {epsilon}{' targeted' if targeted else ''}"


def _test_accuracy(run: Run) -> float:
    if "test_accuracy" not in run.results:
        raise ConfigError(f"run: expected a classifier, got '{run.recipe.model.name}'")
    return 100 * run.results["test_accuracy"]


@register_metric("none")
def _none(run: Run, progress: Progress) -> dict[str, float]:
    """Nothing: the reproduction only draws figures."""
    return {}


@register_metric("accuracy", "accuracy")
def _accuracy(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy on the test split."""
    return {"accuracy": _test_accuracy(run)}


@register_metric("error", "error")
def _error(run: Run, progress: Progress) -> dict[str, float]:
    """Error on the test split."""
    return {"error": 100 - _test_accuracy(run)}


@register_metric("held_out", "training error", "held-out error")
def _held_out(run: Run, progress: Progress) -> dict[str, float]:
    """Error in the last epoch on the training images, as they are augmented, and on the validation split."""
    columns = run.metrics()
    if not columns.get("val_accuracy") or math.isnan(columns["val_accuracy"][-1]):
        raise ConfigError("run: expected a classifier with a validation split, got one without")
    errors = (100 - 100 * columns[name][-1] for name in ("train_accuracy", "val_accuracy"))
    return dict(zip(("training error", "held-out error"), errors, strict=True))


@register_metric("crops", "error", "error, 13 crops")
def _crops(run: Run, progress: Progress) -> dict[str, float]:
    """Error on centre crops, and with predictions averaged over 13 crops (Hinton et al. 2018, section 5)."""
    if not run.recipe.data.augment.crop:
        raise ConfigError("run: expected a recipe with data.augment.crop, got one without")
    averaged = evaluate(run.load_model(), run.load_data("test", stored=True), crops=CROPS_13, progress=progress)
    return {"error": 100 - _test_accuracy(run), "error, 13 crops": 100 * averaged.error}


@register_metric("overlap", "both correct", *(bucket_name(low, high) for low, high in pairwise(OVERLAPS)))
def _overlap(run: Run, progress: Progress) -> dict[str, float]:
    """Pairs with both digits correct, for all images and by overlap."""
    first, *buckets = PROTOCOLS["overlap"](run, progress).rows
    return {"both correct": 100 * first.accuracies[0], **{row.name: 100 * row.accuracies[0] for row in buckets}}


@register_metric("affine", "accuracy on translated_mnist", "accuracy on affnist", "accuracy on affine_mnist")
def _affine(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy on translated digits, and on affNIST or, if it is not available, on `affine_mnist`."""
    result = PROTOCOLS["affine"](run, progress)
    names = ("translated_mnist", result.data)
    return {f"accuracy on {name}": 100 * row.accuracies[0] for name, row in zip(names, result.rows, strict=True)}


@register_metric("viewpoints", "familiar error", "novel error")
def _viewpoints(run: Run, progress: Progress) -> dict[str, float]:
    """Error on familiar viewpoints and on novel ones."""
    rows = PROTOCOLS["viewpoints"](run, progress).rows
    return dict(zip(("familiar error", "novel error"), (100 - 100 * row.accuracies[0] for row in rows), strict=True))


@register_metric("pairs", "accuracy on single digits", "both correct")
def _pairs(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy on single digits, and on two digits side by side, which the network was not trained on."""
    model, source = run.load_model(), run.recipe.data.name
    if not model.any_size or source not in ("mnist", "digits"):
        raise ConfigError(
            "run: expected a model for images of any size, trained on mnist or digits, "
            f"got '{run.recipe.model.name}' on '{source}'"
        )
    pairs = evaluate(model, load_data("digit_pairs", "test", source=source), progress=progress)
    return {"accuracy on single digits": _test_accuracy(run), "both correct": 100 * pairs.accuracy}


@register_metric(
    "attacks",
    "accuracy, no attack",
    *(_attack_column(*kind) for kind in product(METHODS, (False, True), EPSILONS)),
)
def _attacks(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy on the first test images, without attack and under untargeted and targeted attacks."""
    model, data = run.load_model(), run.load_data("test")
    data = data.subset(range(min(ATTACKED_IMAGES, len(data))))
    columns = {"accuracy, no attack": 100 * evaluate(model, data).accuracy}
    for method, targeted in product(METHODS, (False, True)):
        robustness = evaluate_attack(
            model, data, method=method, targeted=targeted, epsilons=EPSILONS, batch_size=100, progress=progress
        )
        for epsilon, accuracy in zip(EPSILONS, robustness.accuracy, strict=True):
            columns[_attack_column(method, targeted, epsilon)] = 100 * accuracy
    return columns
