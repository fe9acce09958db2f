"""A sweep: what mattered, and the result over each value that was varied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, FAINT, LABEL, MUTED, NOTE, TITLE, WARM, new_figure, shorten, style_axes


def sweep(result: Mapping[str, Any]) -> Figure:
    """Draw a sweep: the importance of each value, and the trials along it.

    The best trial is orange. Trials that were ended early or failed have no result and are left out.

    Args:
        result: A sweep as in `sweep.json`: `space`, `trials`, `metric`, `best` and `importance`.

    Returns:
        The figure.

    Raises:
        ConfigError: If no trial is finished.

    Example:
        >>> space = [{"key": "optim.lr", "kind": "log", "choices": []}]
        >>> trials = [{"number": 0, "values": {"optim.lr": "0.01"}, "value": 0.9}]
        >>> result = {"space": space, "trials": trials, "metric": "val_accuracy", "best": 0, "importance": {}}
        >>> len(sweep(result).axes)
        2
    """
    trials = [trial for trial in result["trials"] if trial["value"] is not None]
    if not trials:
        raise ConfigError("trials: expected at least one finished trial, got 0")
    space = result["space"]
    columns = min(3, len(space) + 1)
    rows = math.ceil((len(space) + 1) / columns)
    figure = new_figure(3.5 * columns, 2.9 * rows)
    _bars(figure.add_subplot(rows, columns, 1), result["importance"], [each["key"] for each in space])
    for place, dimension in enumerate(space, start=2):
        axes = style_axes(figure.add_subplot(rows, columns, place))
        _dots(axes, dimension, trials, result["best"])
        axes.set_xlabel(shorten(dimension["key"], 40), **LABEL)
        if result["metric"] == "val_accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        if place == 2:
            axes.set_title(result["metric"].replace("_", " "), **TITLE)
    return figure


def _bars(axes: Axes, importance: Mapping[str, float], keys: Sequence[str]) -> None:
    style_axes(axes, grid=False).grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_title("What mattered", **TITLE)
    names = list(importance) or list(keys)
    axes.set_yticks(range(len(names)), [shorten(name, 24) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    if not importance:
        axes.annotate("too few different results", (0.05, 0.5), xycoords="axes fraction", va="center", **NOTE)
        return
    axes.barh(range(len(names)), list(importance.values()), height=0.5, color=ACCENT)
    axes.set_xlabel("share of the variance (fANOVA)", **LABEL)


def _dots(axes: Axes, dimension: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], best: int | None) -> None:
    choices, key = list(dimension["choices"]), dimension["key"]
    for trial in trials:
        text = trial["values"][key]
        along = choices.index(text) if choices else float(text)
        is_best = trial["number"] == best
        axes.plot(along, trial["value"], "o", color=WARM if is_best else ACCENT, markersize=6 if is_best else 4)
    axes.tick_params(axis="both", colors=MUTED)
    if choices:
        axes.set_xticks(range(len(choices)), [shorten(choice, 14) for choice in choices])
        axes.set_xlim(-0.5, len(choices) - 0.5)
    elif dimension["kind"] in ("log", "logint"):
        axes.set_xscale("log")
