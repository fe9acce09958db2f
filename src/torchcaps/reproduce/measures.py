"""What is measured on a finished run, in the columns of the papers' tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from torchcaps._registry import Registry
from torchcaps.data import CROPS_13, load_data
from torchcaps.errors import ConfigError
from torchcaps.eval import PROTOCOLS, evaluate, withstand
from torchcaps.eval.adversarial import Method
from torchcaps.eval.evaluate import Progress
from torchcaps.eval.protocols import OVERLAPS, bucket_name

if TYPE_CHECKING:
    from torchcaps.train import Run

Ask = Callable[["Run", Progress], dict[str, float]]

# An attack looks at an image up to ten times for each size of the change: the first test images are enough of them.
ATTACKED = 1000
EPSILONS = (0.1, 0.2)
METHODS: tuple[Method, ...] = ("fgsm", "bim")


@dataclass(frozen=True)
class Measure:
    """The columns, each in per cent, and the function that finds those of them that a run can have."""

    columns: tuple[str, ...]
    ask: Ask


MEASURES: Registry[Measure] = Registry("measure")


def _enter(name: str, *columns: str) -> Callable[[Ask], Ask]:
    def register(ask: Ask) -> Ask:
        MEASURES.add(name, Measure(columns, ask))
        return ask

    return register


def _attack_name(method: Method, targeted: bool, epsilon: float) -> str:
    return f"accuracy, {method.upper()} {epsilon}{' targeted' if targeted else ''}"


def _accuracy(run: Run) -> float:
    if "test_accuracy" not in run.results:
        raise ConfigError(f"run: expected a network that classifies, got '{run.recipe.model.name}'")
    return 100 * run.results["test_accuracy"]


@_enter("none")
def _none(run: Run, progress: Progress) -> dict[str, float]:
    """Nothing: only pictures are made."""
    return {}


@_enter("accuracy", "accuracy")
def _right(run: Run, progress: Progress) -> dict[str, float]:
    """The test part, with the weights that validation chose."""
    return {"accuracy": _accuracy(run)}


@_enter("error", "error")
def _wrong(run: Run, progress: Progress) -> dict[str, float]:
    """The test part, with the weights that validation chose."""
    return {"error": 100 - _accuracy(run)}


@_enter("crops", "error", "error, 13 crops")
def _crops(run: Run, progress: Progress) -> dict[str, float]:
    """The centre of each image, and thirteen places averaged (Hinton et al. 2018, section 5)."""
    if not run.recipe.data.augment.crop:
        raise ConfigError("run: expected one that trains on crops (data.augment.crop), got one without")
    many = evaluate(run.load_model(), run.load_data("test", stored=True), crops=CROPS_13, progress=progress)
    return {"error": 100 - _accuracy(run), "error, 13 crops": 100 * many.error}


@_enter("overlap", "both right", *(bucket_name(low, high) for low, high in pairwise(OVERLAPS)))
def _overlap(run: Run, progress: Progress) -> dict[str, float]:
    """Both digits of a pair right, over all and by how far they overlap."""
    first, *buckets = PROTOCOLS["overlap"](run, progress).rows
    return {"both right": 100 * first.accuracies[0], **{row.name: 100 * row.accuracies[0] for row in buckets}}


@_enter("affine", "accuracy on translated_mnist", "accuracy on affnist", "accuracy on affine_mnist")
def _affine(run: Run, progress: Progress) -> dict[str, float]:
    """Translated digits, and affNIST where it is at hand, else our own affine maps, under their own name."""
    findings = PROTOCOLS["affine"](run, progress)
    names = ("translated_mnist", findings.data)
    return {f"accuracy on {name}": 100 * row.accuracies[0] for name, row in zip(names, findings.rows, strict=True)}


@_enter("viewpoints", "familiar error", "novel error")
def _viewpoints(run: Run, progress: Progress) -> dict[str, float]:
    """New toys from the viewpoints that were trained on, and from all others."""
    rows = PROTOCOLS["viewpoints"](run, progress).rows
    return dict(zip(("familiar error", "novel error"), (100 - 100 * row.accuracies[0] for row in rows), strict=True))


@_enter("pairs", "accuracy on single digits", "both right")
def _pairs(run: Run, progress: Progress) -> dict[str, float]:
    """Two digits side by side, to a network that was shown single ones: both must be among the two most active."""
    model, source = run.load_model(), run.recipe.data.name
    if not model.any_size or source not in ("mnist", "digits"):
        raise ConfigError(
            "run: expected a network for images of any size, trained on mnist or digits, "
            f"got '{run.recipe.model.name}' on '{source}'"
        )
    pairs = evaluate(model, load_data("digit_pairs", "test", source=source), progress=progress)
    return {"accuracy on single digits": _accuracy(run), "both right": 100 * pairs.accuracy}


@_enter(
    "attacks",
    "accuracy, no attack",
    *(_attack_name(*kind) for kind in product(METHODS, (False, True), EPSILONS)),
)
def _attacks(run: Run, progress: Progress) -> dict[str, float]:
    """The first test images, changed so that the network errs, or so that it says a class that was drawn for each."""
    model, data = run.load_model(), run.load_data("test")
    few = data.subset(range(min(ATTACKED, len(data))))
    found = {"accuracy, no attack": 100 * evaluate(model, few).accuracy}
    for method, targeted in product(METHODS, (False, True)):
        withstood = withstand(
            model, few, method=method, targeted=targeted, epsilons=EPSILONS, batch_size=100, progress=progress
        )
        for epsilon, share in zip(EPSILONS, withstood.accuracy, strict=True):
            found[_attack_name(method, targeted, epsilon)] = 100 * share
    return found
