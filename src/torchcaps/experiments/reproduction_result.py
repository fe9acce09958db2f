"""The result of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchcaps.experiments.reproductions import NetworkSpec
from torchcaps.experiments.statistics import Statistic, summarize


@dataclass(frozen=True)
class NetworkMetrics:
    """The metrics of a finished run in %, and where and how it was made.

    Args:
        columns: Metrics in %, by name.
        epochs: Number of epochs.
        parameters: Number of parameters, decoder included.
        seconds: Duration of the training.
        machine: Processor, cores, threads, memory and system.
        versions: Versions of the packages.
        commit: Commit of the source code.
        finished: Time at which the training finished.
        precision: Precision of the training.
        warning: What a reader must know about the run.
    """

    columns: dict[str, float]
    epochs: int
    parameters: int
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    finished: str | None = None
    precision: str | None = None
    warning: str | None = None


@dataclass(frozen=True)
class NetworkRun:
    """One run of a reproduction: metrics if it is finished, the reason if it failed.

    Args:
        seed: Seed of the run.
        folder: Name of the run folder.
        status: State of the run.
        metrics: Metrics, if it is finished.
        error: Reason, if it failed.
    """

    seed: int
    folder: str
    status: str
    metrics: NetworkMetrics | None = None
    error: str | None = None


@dataclass(frozen=True)
class NetworkRow:
    """One network of a reproduction: the paper's numbers, and statistics over the finished runs.

    Args:
        label: Label of the network.
        paper: The paper's numbers, by column.
        columns: Statistics of the metrics, by column.
        epochs: Statistic of the number of epochs.
        seconds: Statistic of the duration.
        parameters: Number of parameters, decoder included.
        runs: The runs, one per seed.
        recipe: The recipe, as nested tables.
        outdated: Whether the recipe has changed since the runs.
    """

    label: str
    paper: dict[str, float]
    columns: dict[str, Statistic | None]
    epochs: Statistic | None
    seconds: Statistic | None
    parameters: int | None
    runs: list[NetworkRun]
    recipe: dict[str, Any] = field(default_factory=dict)
    outdated: bool = False

    @property
    def finished(self) -> list[NetworkMetrics]:
        """The metrics of the finished runs."""
        return [run.metrics for run in self.runs if run.metrics is not None]


@dataclass(frozen=True)
class FigureFile:
    """A drawn figure: its file, relative to the folder of the reproduction, caption and alt text.

    Args:
        file: File, relative to the folder of the reproduction.
        caption: Caption.
        alt: Description for readers who cannot see it.
    """

    file: str
    caption: str
    alt: str


@dataclass(frozen=True)
class ReproductionResult:
    """A reproduction with the measured numbers and the drawn figures.

    Args:
        name: Name of the reproduction.
        title: Title of the table or figure.
        source: The paper.
        note: Remark on the results.
        metric: Name of the metric.
        columns: Columns of the table.
        changes: Overrides of all recipes.
        status: `finished` or `stopped`.
        date: Time of the measurement.
        rows: One row per network.
        figures: Figures, by name.
        failed_figures: Reasons for figures that could not be drawn, by name.
        same_experiment: Whether networks and protocol are those of the paper.
    """

    name: str
    title: str
    source: str
    note: str
    metric: str
    columns: list[str]
    changes: list[str]
    status: str
    date: str
    rows: list[NetworkRow]
    figures: dict[str, FigureFile] = field(default_factory=dict)
    failed_figures: dict[str, str] = field(default_factory=dict)
    same_experiment: bool = True

    @property
    def heading(self) -> str:
        """The title; of a trial, whose recipes were changed, with the changes."""
        return f"TRIAL with {', '.join(self.changes)}, not the experiment: {self.title}" if self.changes else self.title

    @property
    def lead(self) -> str:
        """Source and note; the note is about the unchanged experiment and left out of a trial."""
        return f"{self.source}." if self.changes else f"{self.source}. {self.note}".strip()


def summarize_network(network: NetworkSpec, runs: Sequence[NetworkRun], recipe: dict[str, Any]) -> NetworkRow:
    """Compute the row of a network from its runs.

    Args:
        network: Label and paper's numbers.
        runs: Runs of the network.
        recipe: The recipe, as nested tables.

    Returns:
        The row.

    Example:
        >>> network = load_reproduction("mnist_table1").networks[0]  # doctest: +SKIP
        >>> summarize_network(network, runs, recipe).columns  # doctest: +SKIP
    """
    finished = [run.metrics for run in runs if run.metrics is not None]
    names = list(dict.fromkeys(name for metrics in finished for name in metrics.columns))
    return NetworkRow(
        label=network.label,
        paper=network.paper,
        columns={name: summarize(metrics.columns.get(name) for metrics in finished) for name in names},
        epochs=summarize(metrics.epochs for metrics in finished),
        seconds=summarize(metrics.seconds for metrics in finished),
        parameters=next((metrics.parameters for metrics in finished), None),
        runs=list(runs),
        recipe=recipe,
    )


def result_file(name: str, folder: str | Path) -> Path:
    """Return the file of the result of a reproduction.

    Args:
        name: Name of the reproduction.
        folder: Folder of the runs.

    Returns:
        The path.

    Example:
        >>> result_file("mnist_table1", "runs").name
        'reproduction-mnist_table1.json'
    """
    return Path(folder) / f"reproduction-{name}.json"
