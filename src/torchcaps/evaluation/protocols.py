"""Evaluation protocols: fixed experiments on a trained network, as in the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

from torchcaps._registry import Registry
from torchcaps.data import DATASETS, ImageDataset, load_data
from torchcaps.errors import ConfigError, DataError
from torchcaps.evaluation.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from torchcaps.evaluation.evaluate import evaluate
from torchcaps.evaluation.intervals import Interval
from torchcaps.models import ImageModel
from torchcaps.types import Progress

# Boxes of 28 pixels that are shifted by up to 4 pixels each overlap by at least (20/28)^2 = 0.51.
OVERLAPS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class TrainedRun(Protocol):
    """A trained network and its data; `train.Run` is one."""

    @property
    def data_name(self) -> str:
        """Name of the data set."""
        ...

    @property
    def data_options(self) -> Mapping[str, Any]:
        """Options of the data set."""
        ...

    def load_model(self) -> ImageModel:
        """Return the trained network."""
        ...

    def load_data(self, split: str) -> ImageDataset:
        """Return a split as the network sees it."""
        ...


@dataclass(frozen=True)
class ProtocolRow:
    """One row of a protocol's table.

    Attributes:
        name: What was tested.
        count: Number of images.
        accuracies: Accuracy, or another measure, in each column.
        intervals: Interval of each, where it was computed.
    """

    name: str
    count: int
    accuracies: tuple[float, ...]
    intervals: tuple[Interval, ...] = ()


@dataclass(frozen=True)
class Curve:
    """Measures over a quantity.

    Attributes:
        name: Title of the curve.
        axis: The quantity, label of the horizontal axis.
        at: Values of the quantity.
        lines: Values of each measure, by name.
    """

    name: str
    axis: str
    at: tuple[float, ...]
    lines: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class ProtocolResult:
    """The table of a protocol.

    Attributes:
        protocol: Name of the protocol.
        question: The question it answers, a heading for table and figure.
        data: Name of the data set.
        origin: Where the data set comes from.
        columns: Headings of the accuracies.
        rows: The rows.
        column_axis: Quantity that the columns stand for, the horizontal axis of a figure.
        is_share: Whether the values are shares, shown in %.
        curves: Curves that belong to it.
        notes: What was not measured, one sentence each.
    """

    protocol: str
    question: str
    data: str
    origin: str
    columns: tuple[str, ...]
    rows: tuple[ProtocolRow, ...]
    column_axis: str = ""
    is_share: bool = True
    curves: tuple[Curve, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary; the accuracies of a row are keyed by column.
        """
        table = asdict(self)
        rows = []
        for row in table["rows"]:
            intervals = dict(zip(self.columns, map(list, row.pop("intervals")), strict=False))
            values = dict(zip(self.columns, row["accuracies"], strict=True))
            rows.append({**row, "accuracies": values, **({"intervals": intervals} if intervals else {})})
        curves = [
            {**curve, "at": list(curve["at"]), "lines": {name: list(line) for name, line in curve["lines"].items()}}
            for curve in table["curves"]
        ]
        notes = {"notes": list(self.notes)} if self.notes else {}
        del table["notes"]
        return {**table, "columns": list(self.columns), "rows": rows, "curves": curves, **notes}


# Called with a run and a progress; keyword arguments are options of the protocol.
PROTOCOLS: Registry[Callable[..., ProtocolResult]] = Registry("protocol")


def by_overlap(
    model: ImageModel, data: ImageDataset, *, edges: Sequence[float] = OVERLAPS, progress: Progress | None = None
) -> ProtocolResult:
    """Evaluate on pairs of digits, grouped by how far they overlap (Sabour et al. 2017, section 6.1).

    A pair counts as correct if both labels are predicted. A bucket holds overlaps in (low, high].

    Args:
        model: The network.
        data: Pairs with the overlap in `data.meta`, such as multimnist.
        edges: Edges of the buckets.
        progress: Called with (done, total) after each batch.

    Returns:
        The accuracy on all pairs and in each bucket that is not empty.

    Raises:
        ConfigError: If the data have no overlap.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> model = create_model("residual_capsnet", pretrained="multimnist")  # doctest: +SKIP
        >>> by_overlap(model, load_data("multimnist", "test"))  # doctest: +SKIP
    """
    if data.num_labels != 2 or "overlap" not in data.meta:
        raise ConfigError(f"data: expected pairs with an overlap, such as multimnist, got '{data.name}'")
    correct, overlap = evaluate(model, data, progress=progress).correct, data.meta["overlap"]
    rows = [ProtocolRow("all", len(correct), (float(correct.float().mean()),))]
    for low, high in pairwise(edges):
        here = correct[(overlap > low) & (overlap <= high)]
        if len(here):
            rows.append(ProtocolRow(bucket_name(low, high), len(here), (float(here.float().mean()),)))
    question = "How does the accuracy on pairs of digits depend on their overlap?"
    return ProtocolResult("overlap", question, data.name, data.origin, ("both correct",), tuple(rows))


def bucket_name(low: float, high: float) -> str:
    """Return the name of a bucket of overlaps.

    Args:
        low: Lower edge.
        high: Upper edge.

    Returns:
        The name.

    Example:
        >>> bucket_name(0.5, 0.6)
        'overlap 50% to 60%'
    """
    return f"overlap {low:.0%} to {high:.0%}"


def transfer(
    model: ImageModel,
    splits: Iterable[tuple[str, ImageDataset]],
    *,
    protocol: str,
    question: str,
    progress: Progress | None,
) -> ProtocolResult:
    """Evaluate on several data sets, from familiar to new ones.

    Args:
        model: The network.
        splits: Names and data sets; the last one is the new one.
        protocol: Name of the protocol.
        question: Question of the protocol.
        progress: Called with (done, total) after each batch.

    Returns:
        The accuracy on each.

    Raises:
        ConfigError: If there are no splits.

    Example:
        >>> splits = [("mnist", mnist), ("affnist", affnist)]  # doctest: +SKIP
        >>> transfer(model, splits, protocol="affine", question="Affine?", progress=None)  # doctest: +SKIP
    """
    rows, last = [], None
    for name, data in splits:
        rows.append(ProtocolRow(name, len(data), (evaluate(model, data, progress=progress).accuracy,)))
        last = data
    if last is None:
        raise ConfigError("splits: expected at least one, got an empty list")
    return ProtocolResult(protocol, question, last.name, last.origin, ("accuracy",), tuple(rows))


def by_corruption(
    model: ImageModel, data: ImageDataset, *, seed: int = 0, progress: Progress | None = None
) -> ProtocolResult:
    """Evaluate under every corruption at every severity.

    Args:
        model: The network.
        data: Clean images.
        seed: Seed of the corruptions.
        progress: Called with (done, total) after each corruption.

    Returns:
        One row per corruption; column 0 is the accuracy on clean images.

    Raises:
        ConfigError: If the data are no images.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> model = create_model("capsnet_small", pretrained="mnist_dynamic")
        >>> by_corruption(model, load_data("digits", "test"))  # doctest: +SKIP
    """
    if len(data.image_shape) != 3:
        raise ConfigError(f"data: expected images, got {data.image_shape} of '{data.name}'")
    clean = evaluate(model, data).accuracy
    rows = []
    for done, kind in enumerate(CORRUPTIONS.names()):
        accuracies = [evaluate(model, corrupted(data, kind, severity, seed=seed)).accuracy for severity in SEVERITIES]
        rows.append(ProtocolRow(kind.replace("_", " "), len(data), (clean, *accuracies)))
        if progress is not None:
            progress(done + 1, len(CORRUPTIONS.names()))
    columns = ("0", *map(str, SEVERITIES))
    question = "How does the accuracy fall with the severity of a corruption?"
    return ProtocolResult("corruptions", question, data.name, data.origin, columns, tuple(rows), "severity")


@PROTOCOLS.register("overlap")
def _overlap(run: TrainedRun, progress: Progress) -> ProtocolResult:
    return by_overlap(run.load_model(), run.load_data("test"), progress=progress)


@PROTOCOLS.register("corruptions")
def _corruptions(run: TrainedRun, progress: Progress) -> ProtocolResult:
    return by_corruption(run.load_model(), run.load_data("test"), progress=progress)


@PROTOCOLS.register("affine")
def _affine(run: TrainedRun, progress: Progress) -> ProtocolResult:
    """From translated digits to affine transformations (Sabour et al. 2017, section 5.2)."""
    if run.data_name != "translated_mnist":
        raise ConfigError(f"run: expected a run trained on translated_mnist, got '{run.data_name}'")
    familiar, new = run.load_data("test"), affine_digits(run.data_options.get("source", "mnist"))
    question = "How does a network trained on translated digits classify affine transformed ones?"
    splits = (("translated, held out", familiar), (f"{new.name}, {new.split}", new))
    return transfer(run.load_model(), splits, protocol="affine", question=question, progress=progress)


@PROTOCOLS.register("viewpoints")
def _viewpoints(run: TrainedRun, progress: Progress) -> ProtocolResult:
    """From familiar viewpoints to novel ones (Hinton et al. 2018, section 5.1)."""
    if run.data_name != "smallnorb" or "viewpoint" not in run.data_options:
        raise ConfigError(f"run: expected a run trained on smallnorb with the option viewpoint, got '{run.data_name}'")
    viewpoint = run.data_options["viewpoint"]
    splits = ((f"{split} {viewpoint}", run.load_data(split)) for split in ("familiar", "novel"))
    question = "How does the accuracy on familiar viewpoints carry over to novel ones?"
    return transfer(run.load_model(), splits, protocol="viewpoints", question=question, progress=progress)


def affine_digits(source: str, *, real: bool = True) -> ImageDataset:
    """Return the test digits under affine transformations: affNIST, or generated ones if it is not available.

    Args:
        source: Data set whose digits are transformed if affNIST is not available.
        real: Whether to look for affNIST, whose transformations are not known.

    Returns:
        The data set; its name says which one it is.
    """
    if real and "affnist" in DATASETS:
        try:
            return load_data("affnist", "test")
        except DataError:
            pass
    return load_data("affine_mnist", "test", source=source)
