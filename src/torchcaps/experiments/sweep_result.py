"""The result of a sweep and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchcaps.experiments.space import Dimension

# Attribute of a trial that was ended early.
PRUNED = "pruned"


@dataclass(frozen=True)
class SweepTrial:
    """One trial of a sweep.

    Args:
        number: Number of the trial, from 0.
        folder: Name of the run folder.
        values: What it changes in the recipe, by key, as in a recipe.
        status: `finished`, `pruned`, `failed`, `stopped` or `running`.
        value: Metric of the best epoch, if it is finished.
        epochs: Number of epochs.
        seconds: Duration of the training.
        error: Reason, if it failed.
    """

    number: int
    folder: str
    values: dict[str, str]
    status: str
    value: float | None = None
    epochs: int | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, the best of them, and which values mattered.

    Args:
        recipe: The recipe before the changes, as nested tables.
        space: The values that vary.
        metric: Metric that the trials are compared by: `val_accuracy` or `val_loss`, of the best epoch.
        direction: `maximize` or `minimize`.
        planned: Number of trials.
        status: `finished`, `running` or `stopped`.
        date: Time of the result.
        commit: Commit of the source code.
        versions: Versions of the packages.
        machine: Processor, cores, threads, memory and system.
        trials: The trials that have begun, in order.
        best: Number of the best finished trial.
        best_test: Test metrics of the best trial, by name.
        importance: Share of the variance that each value explains (fANOVA), the largest first.
    """

    recipe: dict[str, Any]
    space: list[Dimension]
    metric: str
    direction: str
    planned: int
    status: str
    date: str
    commit: str | None
    versions: dict[str, str]
    machine: dict[str, Any]
    trials: list[SweepTrial]
    best: int | None = None
    best_test: dict[str, float] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return self.recipe["name"]

    @property
    def ranked(self) -> list[SweepTrial]:
        """The trials, the best first; those without a result last."""
        sign = -1 if self.direction == "maximize" else 1
        return sorted(self.trials, key=lambda trial: (trial.value is None, sign * (trial.value or 0), trial.number))


def sweep_lines(result: Sweep, count: int | None = None) -> list[list[str]]:
    """Return the trials as lines of cells, the header first and the best trial next.

    Args:
        result: The sweep.
        count: Number of trials; all by default.

    Returns:
        Lines of cells.

    Example:
        >>> sweep_lines(read_json(Sweep, Path("runs/sweep-digits/sweep.json")), 10)  # doctest: +SKIP
    """
    keys = [dimension.key for dimension in result.space]
    notes = ["note"] * any(trial.error for trial in result.trials)
    lines = [["trial", *(short_keys(keys)), result.metric.replace("_", " "), "status", "epochs", "minutes", *notes]]
    for trial in result.ranked[:count]:
        value = "" if trial.value is None else format_value(result.metric, trial.value)
        lines.append(
            [
                trial.folder,
                *(short_number(trial.values.get(key, "")) for key in keys),
                value,
                trial.status,
                "" if trial.epochs is None else str(trial.epochs),
                "" if trial.seconds is None else f"{trial.seconds / 60:.1f}",
                *([trial.error or ""] if notes else []),
            ]
        )
    return lines


def short_keys(keys: list[str]) -> list[str]:
    """Return the last parts of keys, and whole keys where those are equal.

    >>> short_keys(["optim.lr", "model.name", "data.name"])
    ['lr', 'model.name', 'data.name']
    """
    lasts = [key.rpartition(".")[2] for key in keys]
    return [last if lasts.count(last) == 1 else key for key, last in zip(keys, lasts, strict=True)]


def short_number(text: str) -> str:
    """Return a number with four digits; other text stays.

    >>> short_number("0.00123456"), short_number("dynamic"), short_number("3")
    ('0.001235', 'dynamic', '3')
    """
    try:
        return text if text.lstrip("-").isdecimal() else f"{float(text):.4g}"
    except ValueError:
        return text


def format_value(metric: str, value: float) -> str:
    """Format the metric of a sweep."""
    return f"{value:.2%}" if metric == "val_accuracy" else f"{value:.4f}"


def values_of(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a trial as they are written in a recipe."""
    return {key: value if isinstance(value, str) else repr(value) for key, value in params.items()}
