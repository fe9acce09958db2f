"""The multi-run engine: planned runs in, outcomes out; processes and hosts share the runs of a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from torchcaps.errors import CheckpointError
from torchcaps.experiments.claims import Claim, Claims, Status
from torchcaps.experiments.reporter import SILENT, Reporter
from torchcaps.experiments.run_or_resume import check_same_recipe, failure_reason, is_finished, run_or_resume
from torchcaps.experiments.share_work import share_work
from torchcaps.train import Recipe, Run

M = TypeVar("M")
# Folder of the claims on runs, beside the runs.
CLAIMS = ".claims"
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


def run_grid(
    runs: Sequence[PlannedRun],
    folder: Path,
    measure: Callable[[Run], M],
    *,
    train: Collection[str] | None = None,
    wait: bool = True,
    reporter: Reporter = SILENT,
) -> Iterator[RunOutcome[M]]:
    """Train and measure runs, together with all processes that do so in the same folder, on one host or several.

    A process claims a run before it trains it, and a run is trained by one process at a time. A finished run is not
    trained again and an interrupted one is resumed. A run of a process that was killed is taken over. A run that fails
    does not end the others; one that Ctrl-C stops does. A run that failed earlier is tried again if no other process
    is at work.

    Args:
        runs: The planned runs.
        folder: The folder that contains the folders of the runs.
        measure: Returns the metrics of a finished run.
        train: Labels of the runs to train; others are measured only if they are finished. None trains all.
        wait: Whether to wait for the runs of other processes, and to take over those of killed ones.
        reporter: Receives the progress.

    Yields:
        One outcome per run, in order; those of other processes when they are done.

    Raises:
        CheckpointError: If a folder contains a run of another recipe.

    Example:
        >>> run_grid(runs, Path("runs/grid"), lambda run: run.metrics())  # doctest: +SKIP
    """
    claims = Claims(folder / CLAIMS)
    retry = _failed_before(claims, runs)

    def work(item: tuple[int, PlannedRun]) -> RunOutcome[M]:
        number, planned = item
        reporter.announce(f"{number}/{len(runs)}  {planned.label}, seed {planned.recipe.seed}")
        return _complete(planned, folder / planned.folder, measure, reporter.shows_progress)

    yield from share_work(
        list(enumerate(runs, start=1)),
        lambda item: _begin(item[1], folder, claims, train, retry),
        work,
        wait=wait,
        pause=claims.interval / 5,
        reporter=reporter,
    )


def _begin(
    planned: PlannedRun, folder: Path, claims: Claims, train: Collection[str] | None, retry: dict[str, int]
) -> RunOutcome[Any] | Claim | nullcontext[None] | None:
    """Return the outcome of a run that is not to be trained, the context to train or measure it in, or None to wait."""
    path = folder / planned.folder
    state, finished = claims.state(planned.folder), is_finished(path)
    if not finished and train is not None and planned.label not in train:
        return RunOutcome(planned, "not run")
    # One that failed since is a result of another process.
    again: list[Status] = ["failed"] if retry.get(planned.folder) == state.claimed else []
    if state.status == "failed" and not again:
        return RunOutcome(planned, "failed", error=state.error)
    if finished and state.status == "finished":
        return nullcontext()
    if not finished:
        again.append("finished")
    # A finished run without the mark is measured under a claim, because that takes time too.
    return claims.take(planned.folder, again=again, may_take_over=partial(is_unlocked, path, planned.recipe))


def _failed_before(claims: Claims, runs: Sequence[PlannedRun]) -> dict[str, int]:
    """Return the failed runs with the number of their claims, if no process is at work that may just have failed."""
    states = {planned.folder: claims.state(planned.folder) for planned in runs}
    if any(state.status == "held" for state in states.values()):
        return {}
    return {name: state.claimed for name, state in states.items() if state.status == "failed"}


def is_unlocked(path: Path, recipe: Recipe) -> bool:
    """Return whether no process uses a run: one that is slow but alive keeps its lock."""
    try:
        with Run(path, recipe).locked() if path.is_dir() else nullcontext():
            return True
    except CheckpointError:
        return False


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
