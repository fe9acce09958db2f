"""The tables and the page of a repeated recipe."""

from __future__ import annotations

from pathlib import Path

import torch

from torchcaps import viz
from torchcaps._files import figure_bytes, write_text
from torchcaps.evaluation.metrics import NAMES, PLAIN, format_metric
from torchcaps.experiments.repeat import RepeatedRun, Repetition
from torchcaps.experiments.statistics import Statistic
from torchcaps.report._page import Section, page
from torchcaps.train import Run

# Metrics in the table of the runs.
SHOWN = ("accuracy", "balanced_accuracy", "f1_macro", "roc_auc", "ece", "loss")


def repeat_lines(result: Repetition) -> list[list[str]]:
    """Return the metrics as lines of cells, the header first.

    Args:
        result: The result.

    Returns:
        One line per metric: mean, standard deviation, smallest and largest value, number of runs.

    Example:
        >>> repeat_lines(read_json(Repetition, Path("runs/digits-folds5/repeat.json")))  # doctest: +SKIP
    """
    lines = [["metric", "mean", "deviation", "smallest", "largest", "runs"]]
    for name, statistic in result.metrics.items():
        values = [value for run in result.runs if (value := run.metrics.get(name)) is not None]
        lines.append([NAMES.get(name, name), *_cells(name, statistic, values)])
    return lines


def _cells(name: str, statistic: Statistic | None, values: list[float]) -> list[str]:
    if statistic is None:
        return ["not defined", "", "", "", "0"]
    std = "" if statistic.std is None else _format(name, statistic.std)
    mean, low, high = (_format(name, value) for value in (statistic.mean, min(values), max(values)))
    return [mean, std, low, high, str(statistic.count)]


def _format(name: str, value: float) -> str:
    return f"{value:.4f}" if name in (*PLAIN, "loss") else format_metric(name, value)


def run_lines(result: Repetition) -> list[list[str]]:
    """Return the runs as lines of cells, the header first.

    Args:
        result: The result.

    Returns:
        One line per run.

    Example:
        >>> run_lines(read_json(Repetition, Path("runs/digits-folds5/repeat.json")))  # doctest: +SKIP
    """
    names = [name for name in SHOWN if name in result.metrics]
    notes = ["note"] * any(run.error for run in result.runs)
    lines = [["run", "seed", *(["fold"] if result.folds else []), *(NAMES.get(name, name) for name in names)]]
    lines[0] += ["images", "minutes", *notes]
    for run in result.runs:
        metrics = ["" if (value := run.metrics.get(name)) is None else _format(name, value) for name in names]
        fold = [str(run.fold)] if result.folds else []
        lines.append([run.folder, str(run.seed), *fold, *metrics, *_ends(run), *([run.error or ""] if notes else [])])
    return lines


def _ends(run: RepeatedRun) -> list[str]:
    if run.images is None or run.seconds is None:
        return [run.status, ""]
    return [f"{run.images:,}", f"{run.seconds / 60:.1f}"]


def write_repeat_report(result: Repetition, folder: str | Path) -> Path:
    """Write `report.html`: the metrics, the runs, and the confusion of all runs together.

    The page contains its style and figures and loads nothing from outside.

    Args:
        result: The result.
        folder: The folder of the experiment.

    Returns:
        The path of the page.

    Example:
        >>> write_repeat_report(result, "runs/digits-folds5")  # doctest: +SKIP
    """
    folder = Path(folder)
    finished = [run for run in result.runs if run.status == "finished"]
    first = next((name for name in SHOWN if result.metrics.get(name) is not None), None)
    facts: dict[str, str] = {}
    if first is not None and (statistic := result.metrics[first]) is not None:
        std = "" if statistic.std is None else f" ± {_format(first, statistic.std)}"
        facts[NAMES.get(first, first)] = _format(first, statistic.mean) + std
    facts["runs finished"] = f"{len(finished)} of {len(result.runs)}"
    facts["minutes of training"] = f"{sum(run.seconds or 0 for run in finished) / 60:.1f}"
    text = "Mean and sample standard deviation over the runs, each on its own test images."
    if result.folds:
        grouped = f", grouped by {result.groups}" if result.groups else ""
        text += f" The test images of a run are one of {result.folds} folds, stratified by class{grouped}."
    sections = [Section("Metrics", text, lines=repeat_lines(result)), Section("Runs", "", lines=run_lines(result))]
    sections += _confusion(finished, folder)
    recipe = result.recipe
    title = f"{recipe['model']['name']} on {recipe['data']['name']}"
    seeds = f"seed {result.seeds[0]}" if len(result.seeds) == 1 else f"{len(result.seeds)} seeds"
    lead = f"{seeds}{f', {result.folds} folds' if result.folds else ''}. torch {result.versions['torch']}, torchcaps "
    lead += f"{result.versions['torchcaps']}, {result.machine['processor']}, {result.date[:10]}."
    path = folder / "report.html"
    write_text(path, page(title, lead, facts, sections, {"Recipe": recipe}))
    return path


def _confusion(runs: list[RepeatedRun], folder: Path) -> list[Section]:
    evaluations = [Run.open(folder / run.folder).context.evaluate() for run in runs]
    if not evaluations or evaluations[0].loss is not None:
        return []
    total = torch.stack([evaluation.confusion for evaluation in evaluations]).sum(0)  # [J, J]
    png = figure_bytes(viz.confusion(total, evaluations[0].data.class_names), "png")
    text = f"Predictions of all {len(runs)} runs together: {int(total.sum()):,} images."
    return [Section("Confusion", text, "Confusion matrix of all runs together", png)]
