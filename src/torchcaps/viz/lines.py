"""Named lines in one or several panels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import INK, LABEL, TITLE, line_style, new_figure, shorten, style_axes

# The values along x and along y.
Points = tuple[Sequence[float], Sequence[float]]


def lines(
    panels: Mapping[str, Mapping[str, Points]],
    *,
    x: str,
    y: str = "",
    scale: Literal["linear", "log", "share"] = "linear",
) -> Figure:
    """Draw one panel per title with one line per name; a name has the same style in all panels.

    Args:
        panels: Points by title and name.
        x: Label of the horizontal axes.
        y: Label of the vertical axes.
        scale: Scale of the vertical axes, shared by all panels: from zero ("linear"), over whole decades ("log"), or
            from 0 to 1 ("share").

    Returns:
        The figure.

    Raises:
        ConfigError: If there are no lines.

    Example:
        >>> figure = lines({"Loss": {"one": ([1, 2], [0.5, 0.3]), "three": ([1, 2], [0.4, 0.2])}}, x="epoch")
        >>> len(figure.axes[0].lines)
        2
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    if not names:
        raise ConfigError(f"panels: expected at least one line, got 0 in {len(panels)} panels")
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(6.0 if columns == 1 else 8.6, 0.5 + (3.6 if rows == 1 else 2.9 * rows))
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    handles: dict[str, Line2D] = {}
    for place, (axes, (title, panel)) in enumerate(zip(grid, panels.items(), strict=False)):
        style_axes(axes).set_title(title, **TITLE)
        for name, (along, values) in panel.items():
            # At most about 20 points of a line have a marker.
            every = max(1, len(along) // 20)
            (handles[name],) = axes.plot(along, values, markevery=every, **line_style(names.index(name)))
        if all(float(value).is_integer() for along, _ in panel.values() for value in along):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.04, y=0.1)
        if place >= len(panels) - columns:
            axes.set_xlabel(x, **LABEL)
        if place % columns == 0:
            axes.set_ylabel(y, **LABEL)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    _scale(grid[0], scale, [value for panel in panels.values() for _, values in panel.values() for value in values])
    labels = [shorten(name, 64) for name in names]
    # About 15 letters fit into an inch.
    room = int(15 * figure.get_figwidth() / (8 + max(map(len, labels))))
    figure.legend(
        [handles[name] for name in names],
        labels,
        loc="outside lower center",
        borderaxespad=0,
        ncols=max(1, min(room, len(labels))),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure


def _scale(axes: Axes, scale: str, values: Sequence[float]) -> None:
    """Set the scale of axes, and of all that share it."""
    if scale == "log":
        decades = [math.log10(value) for value in values if value > 0] or [0.0]
        axes.set_yscale("log")
        # Whole decades, so that small changes look small.
        axes.set_ylim(10 ** math.floor(min(decades)), 10 ** max(math.ceil(max(decades)), math.floor(min(decades)) + 1))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    elif scale == "share":
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_ylim(bottom=0)
