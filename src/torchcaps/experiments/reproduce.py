"""Run a reproduction: train, measure, draw, and write the result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from torchcaps._files import make_folder, write_figure, write_text
from torchcaps.experiments._json import read_cache, read_json, write_json
from torchcaps.experiments.grid import PlannedRun, run_grid
from torchcaps.experiments.metrics import METRICS
from torchcaps.experiments.reporter import SILENT, Reporter
from torchcaps.experiments.reproduction_result import (
    FigureFile,
    NetworkMetrics,
    NetworkRun,
    ReproductionResult,
    result_file,
    summarize_network,
)
from torchcaps.experiments.reproductions import Reproduction, changes_experiment, plan_runs
from torchcaps.experiments.run_or_resume import failure_reason
from torchcaps.report import FIGURES, FigureContext, draw_figure
from torchcaps.train import Run
from torchcaps.train.environment import now


def reproduce(
    entry: Reproduction,
    folder: str | Path,
    *,
    train: Sequence[str] | None = None,
    changes: Sequence[str] = (),
    remeasure: bool = False,
    wait: bool = True,
    reporter: Reporter = SILENT,
) -> ReproductionResult:
    """Train the networks of a reproduction, measure them and draw its figures.

    A run is named after its recipe, so that reproductions in one folder share runs. Finished runs are not trained or
    measured again, interrupted ones are resumed, and a run that fails does not end the others. Several processes with
    the same folder share the runs, on one host or several (`run_grid`). `reproduction-NAME.json` is written after each
    run.

    Args:
        entry: The reproduction.
        folder: The folder of the runs.
        train: Labels of the networks to train; others are used only if they are finished. None trains all.
        changes: `key=value` changes to all recipes.
        remeasure: Whether to measure finished runs again.
        wait: Whether to wait for the runs of other processes, and to take over those of killed ones.
        reporter: Receives the progress.

    Returns:
        One row per network. The status is "stopped" after Ctrl-C.

    Raises:
        ConfigError: If a recipe cannot be loaded.
        CheckpointError: If a folder contains a run of another recipe.

    Example:
        >>> from torchcaps.experiments import load_reproduction
        >>> reproduce(load_reproduction("mnist_table1"), "runs/reproduce")  # doctest: +SKIP
    """
    folder = Path(folder)
    plan = plan_runs(entry, changes)
    file = result_file(entry.name, folder)
    figures = _existing_figures(file, folder)

    def measure(run: Run) -> NetworkMetrics:
        return measure_run(run, entry.metric, remeasure=remeasure, reporter=reporter)

    runs: dict[str, list[NetworkRun]] = {network.label: [] for network in entry.networks}
    result = _result(entry, plan, runs, changes)
    for outcome in run_grid(plan, folder, measure, train=train, wait=wait, reporter=reporter):
        planned = outcome.planned
        run = NetworkRun(planned.recipe.seed, planned.folder, outcome.status, outcome.metrics, outcome.error)
        # Runs of other processes may be done in another order.
        runs[planned.label] = sorted([*runs[planned.label], run], key=lambda each: each.seed)
        result = replace(_result(entry, plan, runs, changes), figures=figures)
        write_json(file, result)
    if result.status != "stopped":
        drawn, failed = _draw(entry, runs, folder, reporter, partly=train is not None)
        result = replace(result, figures=drawn, failed_figures=failed)
        write_json(file, result)
    return result


def measure_run(run: Run, metric: str, *, remeasure: bool, reporter: Reporter) -> NetworkMetrics:
    """Return the metrics of a finished run; they are cached in its folder as `metrics-NAME.json`.

    Args:
        run: The finished run.
        metric: Name of the metric.
        remeasure: Whether to ignore the stored metrics.
        reporter: Receives the progress.

    Returns:
        The metrics.
    """
    file = run.path / f"metrics-{metric}.json"
    columns: dict[str, float] = {} if remeasure else read_cache(file)
    if not columns or any(type(value) not in (int, float) for value in columns.values()):
        with reporter.progress("measuring") as progress:
            columns = METRICS[metric].compute(run, progress)
        write_text(file, json.dumps(columns, indent=1) + "\n")
    record, trainer = run.record, run.recipe.trainer
    target, best = trainer.target_accuracy, run.results["best"].get("val_accuracy", 0.0)
    missed = target is not None and best < target
    return NetworkMetrics(
        columns=columns,
        epochs=len(run.metrics()["epoch"]),
        precision=trainer.precision,
        warning=f"validation accuracy {best:.2%}, below the target of {target:.2%}" if missed else None,
        **{name: record[name] for name in ("parameters", "seconds", "machine", "versions", "commit", "finished")},
    )


def _existing_figures(file: Path, folder: Path) -> dict[str, FigureFile]:
    """Return the figures of an earlier result whose files exist."""
    if not file.exists():
        return {}
    figures = read_json(ReproductionResult, file).figures
    return {name: figure for name, figure in figures.items() if (folder / figure.file).exists()}


def _result(
    entry: Reproduction,
    plan: Sequence[PlannedRun],
    runs: Mapping[str, list[NetworkRun]],
    changes: Sequence[str],
) -> ReproductionResult:
    # The recipe of a row is that of its first seed.
    recipes = {planned.label: asdict(planned.recipe) for planned in reversed(plan)}
    statuses = [run.status for each in runs.values() for run in each]
    complete = len(statuses) == len(plan) and set(statuses) == {"finished"}
    return ReproductionResult(
        name=entry.name,
        title=entry.title,
        source=entry.source,
        note=entry.note,
        metric=entry.metric,
        columns=list(METRICS[entry.metric].columns),
        changes=[change for change in changes if changes_experiment(change)],
        status="stopped" if "stopped" in statuses else "finished" if complete else "partial",
        date=now(),
        same_experiment=entry.same_experiment,
        rows=[summarize_network(network, runs[network.label], recipes[network.label]) for network in entry.networks],
    )


def _draw(
    entry: Reproduction, runs: Mapping[str, list[NetworkRun]], folder: Path, reporter: Reporter, *, partly: bool
) -> tuple[dict[str, FigureFile], dict[str, str]]:
    """Draw the figures from the first finished run of each network; return files and reasons of failures.

    If only part of the networks was requested, figures of the others are left out without a reason.
    """
    contexts = {}
    for label, each in runs.items():
        finished = [run.folder for run in each if run.status == "finished"]
        if finished:
            contexts[label] = FigureContext(Run.open(folder / finished[0]))
    figures: dict[str, FigureFile] = {}
    failed: dict[str, str] = {}
    for name in entry.figures if contexts else ():
        reporter.announce(f"drawing {name}")
        file = Path("figures") / f"{entry.name}-{name}.png"
        # A figure that fails is reported, and the numbers remain.
        try:
            if partly and all(FIGURES[name].requires(context) for context in contexts.values()):
                continue
            drawn = draw_figure(name, contexts)
            make_folder((folder / file).parent)
            write_figure(folder / file, drawn.figure)
            figures[name] = FigureFile(file.as_posix(), drawn.caption, drawn.alt)
        except Exception as error:
            failed[name] = failure_reason(error)
    return figures, failed
