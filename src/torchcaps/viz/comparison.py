"""Comparison of routers: accuracy, cost and routing statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, FAINT, LABEL, MUTED, NOTE, TITLE, new_figure, shorten, style_axes

# Least range of an axis of accuracies, in percentage points.
LEAST_POINTS = 5.0


class _Panel(NamedTuple):
    """One quantity for all routers: mean and standard deviation of each, or None."""

    title: str
    values: Sequence[Mapping[str, Any] | None]
    format: str
    scale: float = 1.0
    from_zero: bool = True


def comparison(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the rows of a comparison, one panel per quantity, with standard deviations as error bars.

    Accuracy and seconds per epoch are always drawn; further test data, memory and routing statistics if any row has
    them.

    Args:
        rows: One mapping per router, as in `compare.json`: `router`, and quantities with `mean`, `std` and `count`, or
            None for routers whose runs failed.

    Returns:
        The figure.

    Raises:
        ConfigError: If there are no rows.

    Example:
        >>> row = {"router": "dynamic", "test_accuracy": {"mean": 0.98, "std": 0.01}, "epoch_seconds": None}
        >>> len(comparison([row]).axes)
        2
    """
    if not rows:
        raise ConfigError("rows: expected at least one router, got 0")
    panels = _panels(rows)
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(8.4 if columns < 3 else 10.8, lines * (1.0 + 0.3 * len(rows)) + 0.3)
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, place + 1)
        _dots(axes, panel, [row["test_accuracy"] is None for row in rows])
        axes.set_title(panel.title, **TITLE)
        names = [shorten(row["router"], 20) for row in rows] if place % columns == 0 else [""] * len(rows)
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
    runs = max((row["test_accuracy"]["count"] for row in rows if "count" in (row["test_accuracy"] or {})), default=0)
    about = f"mean and standard deviation of {runs} runs" if runs > 1 else "one run each: small differences are chance"
    if runs:
        figure.axes[0].set_xlabel(about, **LABEL)
    return figure


def _panels(rows: Sequence[Mapping[str, Any]]) -> list[_Panel]:
    def values(name: str) -> list[Mapping[str, Any] | None]:
        return [row.get(name) for row in rows]

    tests = list(dict.fromkeys(name for row in rows for name in row.get("tests", {})))
    # Memory is measured once per router.
    memory = [row.get("memory_mb") for row in rows]
    once = [{"mean": value, "std": None} if isinstance(value, int | float) else None for value in memory]
    further = [
        _Panel("Memory of a step", once, "{:.0f} MB"),
        _Panel("Entropy (1: uniform coupling)", values("entropy"), "{:.2f}"),
        _Panel("Predictions changed by routing", values("changed"), "{:.1f} %", 100),
        _Panel("Dead parents", values("dead"), "{:.1f} %", 100),
        _Panel("Logit change", values("logit_change"), "{:.3f}"),
        _Panel("Gradient norm", values("gradient_norm"), "{:.4f}"),
    ]
    return [
        _Panel("Test accuracy", values("test_accuracy"), "{:.2f} %", 100, from_zero=False),
        *(
            _Panel(f"On {shorten(name, 30)}", [row.get("tests", {}).get(name) for row in rows], "{:.2f} %", 100, False)
            for name in tests
        ),
        _Panel("Seconds per epoch", values("epoch_seconds"), "{:.1f} s"),
        *(panel for panel in further if any(value is not None for value in panel.values)),
    ]


def _dots(axes: Axes, panel: _Panel, failed: Sequence[bool]) -> None:
    style_axes(axes, grid=False).grid(axis="both", color=FAINT, linewidth=0.6)
    axes.margins(x=0.25, y=0.1)
    for place, value in enumerate(panel.values):
        if value is None:
            text = "failed" if failed[place] else "none"
            axes.annotate(text, (0.02, place), xycoords=("axes fraction", "data"), va="center", **NOTE)
            continue
        mean, std = panel.scale * value["mean"], panel.scale * (value["std"] or 0.0)
        axes.errorbar(
            mean,
            place,
            xerr=std or None,
            fmt="o",
            color=ACCENT,
            ecolor=MUTED,
            markersize=5,
            capsize=3,
            linewidth=1.4,
        )
        text = panel.format.format(mean)
        axes.annotate(text, (mean + std, place), (6, 0), textcoords="offset points", va="center", **NOTE)
    _set_range(axes, panel)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    if panel.format.endswith("%"):
        axes.xaxis.set_major_formatter(PercentFormatter(100))
    # Rows without a value keep their position, and an axis of zeros has a range.
    axes.set_ylim(-0.6, len(panel.values) - 0.4)


def _set_range(axes: Axes, panel: _Panel) -> None:
    """Set a range that contains all points and labels, and in which small differences of accuracy look small."""
    known = [value for value in panel.values if value is not None]
    lows, highs = (
        [panel.scale * (value["mean"] + sign * (value["std"] or 0.0)) for value in known] for sign in (-1, 1)
    )
    low, high = min(lows, default=0.0), max(highs, default=1.0)
    low = min(low, 0.0 if panel.from_zero else high - LEAST_POINTS)
    span = (high - low) or 1.0
    # The label of a point is to the right of it.
    axes.set_xlim(low - 0.06 * span, high + 0.5 * span)
    axes.spines["left"].set_visible(not panel.from_zero)
    if panel.from_zero:
        axes.axvline(0, color=FAINT, linewidth=1, zorder=0)
