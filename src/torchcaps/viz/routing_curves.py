"""Routing statistics of every layer over the epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import INK, LABEL, MUTED, NOTE, TITLE, new_figure, shorten, style_axes
from torchcaps.viz.diagnostics import layer_colours

_NEEDED = ("epoch", "layer", "iteration", "measure", "value")


class _Row(NamedTuple):
    epoch: float
    layer: str
    iteration: int | None
    measure: str
    value: float


def routing_curves(table: Mapping[str, Sequence[Any]]) -> Figure:
    """Draw routing diagnostics over the epochs in six panels, one colour per layer.

    Entropy of the coupling (1 is uniform) and mean logit change at every iteration, the last one in full colour;
    fractions of predictions changed by routing and of dead parents; norm and coherence of gradients.

    Args:
        table: Columns `epoch`, `layer`, `iteration`, `measure` and `value`, as `Run.diagnostics` returns them.

    Returns:
        The figure.

    Raises:
        ConfigError: If a column is missing or no layer has an entropy.

    Example:
        >>> some = {"epoch": [1, 2], "layer": ["head"] * 2, "iteration": [3, 3], "measure": ["entropy"] * 2}
        >>> len(routing_curves({**some, "value": [0.9, 0.8]}).axes)
        6
    """
    if not set(_NEEDED) <= set(table):
        raise ConfigError(f"table: expected the columns {', '.join(_NEEDED)}, got {', '.join(table) or 'none'}")
    rows = [_Row(*cells) for cells in zip(*(table[name] for name in _NEEDED), strict=True)]
    layers = list(dict.fromkeys(row.layer for row in rows if row.measure == "entropy"))
    if not layers:
        raise ConfigError("table: expected the entropy of at least one routing layer, but the table has none")
    colours = dict(zip(layers, layer_colours(len(layers)), strict=True))
    figure = new_figure(8.4, 8.4)
    panels = figure.subplots(3, 2)
    _iterations(panels[0, 0], rows, "entropy", colours)
    panels[0, 0].set_title("Entropy of the coupling (1: uniform)", **TITLE)
    panels[0, 0].set_ylim(0, 1.05)
    panels[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK)
    _iterations(panels[0, 1], rows, "logit_change", colours)
    panels[0, 1].set_title("Mean logit change", **TITLE)
    changes = [row.value for row in rows if row.measure == "logit_change" and math.isfinite(row.value)]
    panels[0, 1].set_ylim(0, 1.15 * max(changes, default=0.0) or 1.0)
    _shares(panels[1, 0], rows, "changed", colours)
    panels[1, 0].set_title("Changed predictions", **TITLE)
    _shares(panels[1, 1], rows, "dead", colours)
    panels[1, 1].set_title("Dead parents", **TITLE)
    _gradient_norms(panels[2, 0], rows, colours)
    _gradient_coherence(panels[2, 1], rows, colours)
    for axes in panels.flat:
        style_axes(axes)
        axes.set_xlabel("epoch", **LABEL)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.04)
    return figure


def _iterations(axes: Axes, rows: Sequence[_Row], measure: str, colours: Mapping[str, str]) -> None:
    """Draw one line per layer and iteration, earlier iterations fainter."""
    for layer, colour in colours.items():
        mine = [row for row in rows if (row.layer, row.measure) == (layer, measure)]
        iterations = sorted({row.iteration or 0 for row in mine})
        for iteration in iterations:
            last = iteration == iterations[-1]
            points = ((row.epoch, row.value) for row in mine if (row.iteration or 0) == iteration)
            alpha = 0.15 + 0.85 * (iterations.index(iteration) + 1) / len(iterations)
            _line(axes, points, color=colour, alpha=alpha, label=shorten(layer, 24) if last else None)
    if not axes.lines:
        axes.text(0.5, 0.5, "one iteration: no change", transform=axes.transAxes, ha="center", **NOTE)


def _shares(axes: Axes, rows: Sequence[_Row], measure: str, colours: Mapping[str, str]) -> None:
    for layer, colour in colours.items():
        _line(axes, _points(rows, layer, measure), color=colour)
    highest = max((row.value for row in rows if row.measure == measure), default=0.0)
    axes.set_ylim(-0.005, max(0.1, 1.1 * highest))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _gradient_norms(axes: Axes, rows: Sequence[_Row], colours: Mapping[str, str]) -> None:
    """Draw one line per routing layer, and one for all other layers together."""
    rest: dict[float, float] = {}
    for row in rows:
        if row.measure == "gradient_norm" and row.layer not in colours:
            rest[row.epoch] = math.hypot(rest.get(row.epoch, 0.0), row.value)
    for layer, colour in colours.items():
        _line(axes, _points(rows, layer, "gradient_norm"), color=colour)
    _line(axes, rest.items(), color=INK, linestyle="--", label="all other layers")
    if axes.lines and all(value > 0 for line in axes.lines for value in np.asarray(line.get_ydata())):
        axes.set_yscale("log")
        axes.tick_params(which="minor", labelsize=8, labelcolor=MUTED)
    if rest:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    axes.set_title("Gradient norm", **TITLE)


def _gradient_coherence(axes: Axes, rows: Sequence[_Row], colours: Mapping[str, str]) -> None:
    """Draw one line per routing layer, and one for the smallest value of all other layers."""
    rest: dict[float, float] = {}
    for row in rows:
        if row.measure == "gradient_coherence" and row.layer not in colours and math.isfinite(row.value):
            rest[row.epoch] = min(rest.get(row.epoch, 1.0), row.value)
    for layer, colour in colours.items():
        _line(axes, _points(rows, layer, "gradient_coherence"), color=colour)
    _line(axes, rest.items(), color=INK, linestyle="--", label="smallest of the other layers")
    if not axes.lines:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", **NOTE)
    if rest:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    lowest = min((row.value for row in rows if row.measure == "gradient_coherence"), default=0.0)
    axes.set_ylim(min(-0.1, 1.1 * lowest), 1.02)
    axes.set_title("Gradient coherence (0: noise)", **TITLE)


def _points(rows: Sequence[_Row], layer: str, measure: str) -> Iterator[tuple[float, float]]:
    return ((row.epoch, row.value) for row in rows if (row.layer, row.measure) == (layer, measure))


def _line(axes: Axes, points: Iterable[tuple[float, float]], **style: Any) -> None:
    """Draw one line without values that are not finite."""
    known = [(epoch, value) for epoch, value in points if math.isfinite(value)]
    if known:
        marker = "o" if len(known) <= 40 else None
        axes.plot(*zip(*known, strict=True), linewidth=1.6, marker=marker, markersize=3, **style)
