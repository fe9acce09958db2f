"""Protocols: questions that are put to a trained network in the same way every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torchcaps._registry import Registry
from torchcaps.data import DATASETS, ImageData, load_data
from torchcaps.errors import ConfigError, DataError
from torchcaps.eval.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from torchcaps.eval.evaluate import Progress, evaluate
from torchcaps.models import ImageModel

if TYPE_CHECKING:
    from torchcaps.train import Run

# Boxes of 28 that are moved by up to 4 pixels each overlap by at least (20/28)^2 = 0.51.
OVERLAPS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Finding:
    """One line of a table: what was tested, on how many images, and the accuracy in each column."""

    name: str
    count: int
    accuracies: tuple[float, ...]


@dataclass(frozen=True)
class Findings:
    """What a protocol found, and on which data: `origin` says where they came from."""

    protocol: str
    question: str
    data: str
    origin: str
    columns: tuple[str, ...]
    rows: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        table = asdict(self)
        rows = [{**row, "accuracies": dict(zip(self.columns, row["accuracies"], strict=True))} for row in table["rows"]]
        return {**table, "columns": list(self.columns), "rows": rows}


PROTOCOLS: Registry[Callable[[Run, Progress], Findings]] = Registry("protocol")


def by_overlap(
    model: ImageModel, data: ImageData, *, edges: Sequence[float] = OVERLAPS, progress: Progress | None = None
) -> Findings:
    """How many pairs are read wholly right, by how far the two digits cover each other; no half credit.

    A bucket holds the overlaps above its lower edge, up to and with its upper one (Sabour et al. 2017, section 6.1).
    """
    if data.num_labels != 2 or "overlap" not in data.meta:
        raise ConfigError(f"data: expected pairs that overlap, such as multimnist, got '{data.name}'")
    right, overlap = evaluate(model, data, progress=progress).right, data.meta["overlap"]
    rows = [Finding("all", len(right), (float(right.float().mean()),))]
    for low, high in pairwise(edges):
        here = right[(overlap > low) & (overlap <= high)]
        if len(here):
            rows.append(Finding(bucket_name(low, high), len(here), (float(here.float().mean()),)))
    question = "How often are both digits right, by how far they overlap?"
    return Findings("overlap", question, data.name, data.origin, ("both right",), tuple(rows))


def bucket_name(low: float, high: float) -> str:
    """What a bucket of overlaps is called.

    >>> bucket_name(0.5, 0.6)
    'overlap 50% to 60%'
    """
    return f"overlap {low:.0%} to {high:.0%}"


def transfer(
    model: ImageModel,
    parts: Iterable[tuple[str, ImageData]],
    *,
    protocol: str,
    question: str,
    progress: Progress | None,
) -> Findings:
    """The accuracy on each of some parts: the first is what the network knows, the last is what is new to it."""
    rows, last = [], None
    for name, data in parts:
        rows.append(Finding(name, len(data), (evaluate(model, data, progress=progress).accuracy,)))
        last = data
    if last is None:
        raise ConfigError("parts: expected at least one, got none")
    return Findings(protocol, question, last.name, last.origin, ("accuracy",), tuple(rows))


def by_corruption(model: ImageModel, data: ImageData, *, seed: int = 0, progress: Progress | None = None) -> Findings:
    """The accuracy under every corruption at every severity; column 0 is that on the images as they are."""
    clean = evaluate(model, data).accuracy
    rows = []
    for done, kind in enumerate(CORRUPTIONS.names()):
        found = [evaluate(model, corrupted(data, kind, severity, seed=seed)).accuracy for severity in SEVERITIES]
        rows.append(Finding(kind.replace("_", " "), len(data), (clean, *found)))
        if progress is not None:
            progress(done + 1, len(CORRUPTIONS.names()))
    columns = ("0", *map(str, SEVERITIES))
    question = "How does the accuracy fall as the images get worse?"
    return Findings("corruptions", question, data.name, data.origin, columns, tuple(rows))


@PROTOCOLS.register("overlap")
def _overlap(run: Run, progress: Progress) -> Findings:
    return by_overlap(run.load_model(), run.load_data("test"), progress=progress)


@PROTOCOLS.register("corruptions")
def _corruptions(run: Run, progress: Progress) -> Findings:
    return by_corruption(run.load_model(), run.load_data("test"), progress=progress)


@PROTOCOLS.register("affine")
def _affine(run: Run, progress: Progress) -> Findings:
    """From translated digits to digits under affine maps (Sabour et al. 2017, section 5.2).

    The real affNIST where it is at hand, else our own maps of the run's digits: `data` and `origin` say which.
    """
    data = run.recipe.data
    if data.name != "translated_mnist":
        raise ConfigError(f"run: expected one that was trained on translated_mnist, got '{data.name}'")
    known, new = run.load_data("test"), affine_digits(data.options.get("source", "mnist"))
    question = "What is left of the accuracy on translated digits under other affine maps?"
    parts = (("translated, held out", known), (f"{new.name}, {new.split}", new))
    return transfer(run.load_model(), parts, protocol="affine", question=question, progress=progress)


@PROTOCOLS.register("viewpoints")
def _viewpoints(run: Run, progress: Progress) -> Findings:
    """From familiar viewpoints to novel ones (Hinton et al. 2018, section 5.1)."""
    data = run.recipe.data
    if data.name != "smallnorb" or "viewpoint" not in data.options:
        raise ConfigError(
            f"run: expected one that was trained on smallnorb with the option viewpoint, got '{data.name}'"
        )
    parts = ((f"{split} {data.options['viewpoint']}", run.load_data(split)) for split in ("familiar", "novel"))
    question = "What is left of the accuracy on familiar viewpoints from novel ones?"
    return transfer(run.load_model(), parts, protocol="viewpoints", question=question, progress=progress)


def affine_digits(source: str) -> ImageData:
    """Digits under affine maps for a network that knows translated ones: affNIST, or our own maps of the source's."""
    if "affnist" in DATASETS:
        try:
            return load_data("affnist", "test")
        except DataError:
            # Not at hand and not to be had: the stand-in, under its own name.
            pass
    return load_data("affine_mnist", "test", source=source)
