"""Routers beside each other: how accurate they are, and how long an epoch takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, FAINT, LABEL, MUTED, NOTE, TITLE, calm, new_figure, shorten


def comparison(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the rows of a comparison: accuracy on the test part and seconds per epoch, with deviations as bars.

    Each row has a name, `router`, and under `test_accuracy` and `epoch_seconds` a mean and a deviation, or None where
    its runs failed, as `torchcaps compare` writes them.

    >>> row = {"router": "dynamic", "test_accuracy": {"mean": 0.98, "deviation": 0.01}, "epoch_seconds": None}
    >>> len(comparison([row]).axes)
    2
    """
    if not rows:
        raise ConfigError("rows: expected at least one router, got none")
    figure = new_figure(8.4, 1.3 + 0.32 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    _dots(left, rows, "test_accuracy", 100, "{:.2f} %")
    left.xaxis.set_major_formatter(PercentFormatter(100))
    left.set_title("Accuracy on the test part", **TITLE)
    left.set_yticks(range(len(rows)), [shorten(row["router"], 20) for row in rows])
    left.invert_yaxis()
    _dots(right, rows, "epoch_seconds", 1, "{:.1f} s")
    right.set_xlim(left=0)
    right.set_title("Seconds per epoch", **TITLE)
    runs = max((row["test_accuracy"]["count"] for row in rows if "count" in (row["test_accuracy"] or {})), default=0)
    if runs > 1:
        left.set_xlabel(f"mean and deviation of {runs} runs", **LABEL)
    return figure


def _dots(axes: Axes, rows: Sequence[Mapping[str, Any]], what: str, scale: float, words: str) -> None:
    calm(axes, grid=False).grid(axis="both", color=FAINT, linewidth=0.6)
    axes.margins(x=0.25, y=0.1)
    for place, row in enumerate(rows):
        value = row[what]
        if value is None:
            axes.annotate("failed", (0.02, place), xycoords=("axes fraction", "data"), va="center", **NOTE)
            continue
        mean, deviation = scale * value["mean"], scale * (value["deviation"] or 0.0)
        axes.errorbar(
            mean,
            place,
            xerr=deviation or None,
            fmt="o",
            color=ACCENT,
            ecolor=MUTED,
            markersize=5,
            capsize=3,
            linewidth=1.4,
        )
        text = words.format(mean)
        axes.annotate(text, (mean + deviation, place), (6, 0), textcoords="offset points", va="center", **NOTE)
