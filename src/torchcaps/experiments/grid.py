"""The multi-run engine: planned runs in, outcomes out, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from torchcaps.experiments.run_or_resume import check_same_recipe, failure_reason, is_finished, run_or_resume
from torchcaps.train import Recipe, Run
from torchcaps.types import Progress

M = TypeVar("M")
RunStatus = Literal["finished", "failed", "stopped", "not run"]


@dataclass(frozen=True)
class PlannedRun:
    """A run of an experiment: the label of its row, its recipe, and the name of its folder.

    Args:
        label: Label of the row in the table.
        recipe: Recipe of the run.
        folder: Name of the run folder.
    """

    label: str
    recipe: Recipe
    folder: str


@dataclass(frozen=True)
class RunOutcome(Generic[M]):
    """The outcome of a planned run: metrics if it is finished, the reason if it failed.

    Args:
        planned: The planned run.
        status: State of the run.
        metrics: Metrics, if it is finished.
        error: Reason, if it failed.
    """

    planned: PlannedRun
    status: RunStatus
    metrics: M | None = None
    error: str | None = None


class Reporter(Protocol):
    """Where an experiment reports its progress."""

    shows_progress: bool

    def announce(self, text: str) -> None:
        """Report the start of a step.

        Args:
            text: Description of the step.
        """
        ...

    def progress(self, title: str) -> AbstractContextManager[Progress]:
        """Return a progress bar.

        Args:
            title: Text beside the bar.

        Returns:
            A context manager whose value takes (done, total).
        """
        ...


class SilentReporter:
    """Reports nothing.

    Example:
        >>> reporter = SilentReporter()
    """

    shows_progress = False

    def announce(self, text: str) -> None:
        """Do nothing.

        Args:
            text: Ignored.
        """

    def progress(self, title: str) -> AbstractContextManager[Progress]:
        """Return a progress function that does nothing.

        Args:
            title: Ignored.

        Returns:
            A context manager whose value does nothing.
        """
        return nullcontext(lambda done, total: None)


SILENT = SilentReporter()


def run_grid(
    runs: Sequence[PlannedRun],
    folder: Path,
    measure: Callable[[Run], M],
    *,
    train: Collection[str] | None = None,
    reporter: Reporter = SILENT,
) -> Iterator[RunOutcome[M]]:
    """Train and measure runs in order.

    A finished run is not trained again and an interrupted one is resumed. A run that fails does not end the others;
    one that Ctrl-C stops does.

    Args:
        runs: The planned runs.
        folder: The folder that contains the folders of the runs.
        measure: Returns the metrics of a finished run.
        train: Labels of the runs to train; others are measured only if they are finished. None trains all.
        reporter: Receives the progress.

    Yields:
        One outcome per run.

    Raises:
        CheckpointError: If a folder contains a run of another recipe.

    Example:
        >>> run_grid(runs, Path("runs/grid"), lambda run: run.metrics())  # doctest: +SKIP
    """
    for number, planned in enumerate(runs, start=1):
        reporter.announce(f"{number}/{len(runs)}  {planned.label}, seed {planned.recipe.seed}")
        path = folder / planned.folder
        if train is None or planned.label in train or is_finished(path):
            outcome = _complete(planned, path, measure, reporter.shows_progress)
        else:
            outcome = RunOutcome[M](planned, "not run")
        yield outcome
        if outcome.status == "stopped":
            return


def _complete(planned: PlannedRun, path: Path, measure: Callable[[Run], M], progress: bool) -> RunOutcome[M]:
    if (path / "run.json").exists():
        check_same_recipe(Run.open(path), planned.recipe)
    # Any error of a network is a result to report.
    try:
        run = run_or_resume(planned.recipe, path, progress=progress)
        if run.status != "finished":
            return RunOutcome(planned, "stopped")
        return RunOutcome(planned, "finished", measure(run))
    except KeyboardInterrupt:
        return RunOutcome(planned, "stopped")
    except Exception as error:
        return RunOutcome(planned, "failed", error=failure_reason(error))
