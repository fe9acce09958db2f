"""Gains over a control with their margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, FAINT, LABEL, MUTED, NOTE, WARM, new_figure, shorten, style_axes


def gains(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how much better than a control each comparison is, with its margin.

    Blue is better by more than the margin, orange worse by more than it, grey neither.

    Args:
        rows: One mapping per comparison, as in the `numbers` of `torchcaps claims --json`: `name`, `gain`, `margin`
            and `outdated`.

    Returns:
        The figure.

    Raises:
        ConfigError: If there are no rows.

    Example:
        >>> len(gains([{"name": "CapsNet against CNN", "gain": 1.7, "margin": 1.2, "outdated": False}]).axes)
        1
    """
    if not rows:
        raise ConfigError("rows: expected at least one comparison, got 0")
    figure = new_figure(8.4, 0.9 + 0.3 * len(rows))
    axes = figure.add_subplot()
    style_axes(axes, grid=False).grid(axis="both", color=FAINT, linewidth=0.6)
    axes.axvline(0, color=MUTED, linewidth=1)
    for place, row in enumerate(rows):
        gain, margin = row["gain"], row["margin"]
        color = ACCENT if gain > margin else WARM if gain < -margin else MUTED
        axes.errorbar(gain, place, xerr=margin, fmt="o", color=color, markersize=5, capsize=3, linewidth=1.4)
        text = f"{gain:+.2f}" + (", earlier recipe" if row["outdated"] else "")
        axes.annotate(text, (gain + margin, place), (6, 0), textcoords="offset points", va="center", **NOTE)
    axes.set_yticks(range(len(rows)), [shorten(row["name"], 60) for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.invert_yaxis()
    low, high = min(row["gain"] - row["margin"] for row in rows), max(row["gain"] + row["margin"] for row in rows)
    low, high = min(low, 0), max(high, 0)
    span = (high - low) or 1.0
    # The label of a point is to the right of it.
    axes.set_xlim(low - 0.05 * span, high + 0.5 * span)
    axes.set_xlabel("gain over the control, with the margin", **LABEL)
    return figure
