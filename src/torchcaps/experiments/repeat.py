"""Train one recipe several times: with several seeds, and on the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchcaps.data import load_data
from torchcaps.errors import ConfigError
from torchcaps.experiments._json import write_json
from torchcaps.experiments.grid import PlannedRun, RunOutcome, run_grid
from torchcaps.experiments.reporter import SILENT, Reporter
from torchcaps.experiments.statistics import Statistic, summarize
from torchcaps.train import Recipe, Run
from torchcaps.train.environment import commit, machine, now, versions
from torchcaps.train.recipe import DataRecipe, checking_options, with_absolute_paths

RESULT = "repeat.json"


@dataclass(frozen=True)
class RepeatedRun:
    """One run: metrics on its test split if it is finished, the reason if it failed.

    Args:
        folder: Name of the run folder.
        seed: Seed of the run.
        fold: Number of the fold that it was tested on, from 1; None without folds.
        status: State of the run.
        metrics: Metrics by name; None for one that is not defined.
        images: Number of test images.
        seconds: Duration of the training.
        error: Reason, if it failed.
    """

    folder: str
    seed: int
    fold: int | None
    status: str
    metrics: dict[str, float | None] = field(default_factory=dict)
    images: int | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Repetition:
    """The runs of one recipe, and mean and deviation of every metric.

    Args:
        recipe: The recipe, as nested tables.
        status: `finished`, `running` or `stopped`.
        date: Time of the result.
        commit: Commit of the source code.
        versions: Versions of the packages.
        machine: Processor, cores, threads, memory and system.
        seeds: Seeds of the runs.
        folds: Number of folds; None without.
        groups: What images of one group have in common; None without groups.
        metrics: Statistics over the finished runs by name, in the order of tables.
        runs: The runs.
    """

    recipe: dict[str, Any]
    status: str
    date: str
    commit: str | None
    versions: dict[str, str]
    machine: dict[str, Any]
    seeds: list[int]
    folds: int | None
    groups: str | None
    metrics: dict[str, Statistic | None]
    runs: list[RepeatedRun]


def repeat(
    recipe: Recipe,
    folder: str | Path,
    *,
    seeds: int = 1,
    folds: int | None = None,
    groups: str | None = None,
    wait: bool = True,
    reporter: Reporter = SILENT,
) -> Repetition:
    """Train a recipe with several seeds, or on the folds of a cross-validation, or both.

    Each run has its own folder. Finished runs are not repeated, interrupted ones are resumed. Several processes with
    the same folder share the runs, on one host or several (`run_grid`). `repeat.json` is written after each run.

    Args:
        recipe: The recipe of all runs.
        folder: The folder of the experiment.
        seeds: Number of seeds, counted from that of the recipe.
        folds: Number of folds, stratified by class (`data.load_folds`); None trains on the splits of the recipe.
        groups: What images of one group have in common, such as the patient: `folder`, `FILE.csv:COLUMN`, or the name
            of a value of the data set. A group is in one fold.
        wait: Whether to wait for the runs of other processes, and to take over those of killed ones.
        reporter: Receives the progress.

    Returns:
        The runs with mean and deviation of all metrics. The status is "stopped" after Ctrl-C.

    Raises:
        ConfigError: If a number is out of range, or a class has fewer images or groups than folds.
        DataError: If an image has no group.

    Example:
        >>> from torchcaps.train import load_recipe
        >>> repeat(load_recipe("digits"), "runs/digits-folds5", folds=5).metrics["f1_macro"]  # doctest: +SKIP
    """
    if seeds < 1:
        raise ConfigError(f"seeds: expected at least 1, got {seeds}")
    if groups is not None and folds is None:
        raise ConfigError(f"groups: expected a number of folds too, got only groups '{groups}'")
    plan = plan_repeats(recipe, seeds, folds, groups)
    if folds is not None:
        # A class with too few images is reported before anything is trained.
        with checking_options("data.options", plan[0].recipe.data.options):
            load_data("folds", "val", **plan[0].recipe.data.options)
    folder, runs = Path(folder), []
    about = {"seeds": list(range(recipe.seed, recipe.seed + seeds)), "folds": folds, "groups": groups}
    result = _result(recipe, [], len(plan), about)
    for outcome in run_grid(plan, folder, measure_run, wait=wait, reporter=reporter):
        runs.append(_repeated(outcome))
        result = _result(recipe, runs, len(plan), about)
        write_json(folder / RESULT, result)
    return result


def plan_repeats(recipe: Recipe, seeds: int, folds: int | None, groups: str | None) -> list[PlannedRun]:
    """Return the runs in order: all folds with the first seed, then with the second.

    Args:
        recipe: The recipe.
        seeds: Number of seeds, from that of the recipe on.
        folds: Number of folds; None for the splits of the data set.
        groups: Groups that stay in one fold; None for none.

    Returns:
        The runs.
    """
    every = range(recipe.seed, recipe.seed + seeds)
    if folds is None:
        return [PlannedRun(recipe.name, replace(recipe, seed=seed), f"seed{seed}") for seed in every]
    planned = []
    for seed in every:
        for fold in range(1, folds + 1):
            data = on_fold(recipe, fold, folds, groups)
            name = f"fold{fold}" + (f"-seed{seed}" if seeds > 1 else "")
            planned.append(PlannedRun(f"fold {fold} of {folds}", replace(recipe, seed=seed, data=data), name))
    return planned


def on_fold(recipe: Recipe, fold: int, folds: int, groups: str | None) -> DataRecipe:
    """Return the data of one fold; the folds depend on the seed of the recipe alone.

    Args:
        recipe: The recipe.
        fold: Number of the fold, from 1.
        folds: Number of folds.
        groups: Groups that stay in one fold; None for none.

    Returns:
        The `data` table of a recipe.
    """
    data = with_absolute_paths(recipe).data
    options: dict[str, Any] = {"source": data.name, "fold": fold, "folds": folds, "seed": recipe.seed}
    if groups is not None:
        table, colon, column = groups.rpartition(":")
        options["groups"] = f"{Path(table).expanduser().absolute()}:{column}" if colon else groups
    return replace(data, name="folds", options={**options, "options": data.options})


def measure_run(run: Run) -> RepeatedRun:
    """Return the metrics of a finished run on its test split."""
    evaluation = run.context.evaluate()
    metrics: dict[str, float | None] = {"loss": evaluation.loss}
    if evaluation.loss is None:
        metrics = {name: metric.value for name, metric in evaluation.metrics.values.items()}
    fold = run.recipe.data.options.get("fold")
    return RepeatedRun(
        run.path.name, run.recipe.seed, fold, "finished", metrics, evaluation.count, run.record["seconds"]
    )


def _repeated(outcome: RunOutcome[RepeatedRun]) -> RepeatedRun:
    if outcome.metrics is not None:
        return outcome.metrics
    planned = outcome.planned
    fold = planned.recipe.data.options.get("fold")
    return RepeatedRun(planned.folder, planned.recipe.seed, fold, outcome.status, error=outcome.error)


def _result(recipe: Recipe, runs: Sequence[RepeatedRun], planned: int, about: dict[str, Any]) -> Repetition:
    # Runs of other processes may be done in another order.
    ordered = sorted(runs, key=lambda run: (run.seed, run.fold or 0))
    statuses = [run.status for run in ordered]
    names = dict.fromkeys(name for run in ordered for name in run.metrics)
    return Repetition(
        recipe=asdict(recipe),
        status="stopped" if "stopped" in statuses else "finished" if len(runs) == planned else "running",
        date=now(),
        commit=commit(),
        versions=versions(),
        machine=machine(),
        metrics={name: summarize(run.metrics.get(name) for run in ordered) for name in names},
        runs=ordered,
        **about,
    )
