"""Learning curves: loss and accuracy over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchcaps.errors import ConfigError
from torchcaps.viz._style import ACCENT, INK, LABEL, MUTED, TITLE, WARM, new_figure, style_axes

Metrics = Mapping[str, Sequence[float]]


def curves(metrics: Metrics) -> Figure:
    """Draw all columns that end in `loss` and, beside them, all that end in `accuracy`.

    Args:
        metrics: One value per row for each column, as `Run.metrics` returns them. NaN is skipped. The horizontal axis
            is the column `epoch`, or the row number.

    Returns:
        The figure.

    Raises:
        ConfigError: If no column ends in `loss` or `accuracy`.

    Example:
        >>> len(curves({"epoch": [0, 1], "train_loss": [0.5, 0.2], "val_accuracy": [0.8, 0.9]}).axes)
        2
    """
    panels = [(kind, [name for name in metrics if name.endswith(kind)]) for kind in ("loss", "accuracy")]
    panels = [(kind, names) for kind, names in panels if names]
    if not panels:
        raise ConfigError(f"metrics: expected columns that end in 'loss' or 'accuracy', got {', '.join(metrics)}")
    figure = new_figure(4.6 * len(panels), 3.1)
    for place, (kind, names) in enumerate(panels):
        axes = style_axes(figure.add_subplot(1, len(panels), place + 1))
        for name, colour in zip(names, _colours(names), strict=True):
            _line(axes, metrics, name, kind, colour)
        axes.set_title(kind.capitalize(), **TITLE)
        axes.set_xlabel("epoch" if "epoch" in metrics else "row", **LABEL)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.02, y=0.12)
        if kind == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _colours(names: Sequence[str]) -> list[str]:
    """Return the accent colour for the first validation column, other colours in turn for the rest."""
    held_out = [name for name in names if not name.startswith("train")]
    rest = [MUTED, WARM]
    return [ACCENT if held_out and name == held_out[0] else rest[index % len(rest)] for index, name in enumerate(names)]


def _line(axes: Axes, metrics: Metrics, name: str, kind: str, colour: str) -> None:
    """Draw one curve without missing values, with its last value in the legend."""
    times = metrics.get("epoch", range(len(metrics[name])))
    points = [(x, y) for x, y in zip(times, metrics[name], strict=True) if not math.isnan(y)]
    if not points:
        return
    what = name.removesuffix(kind).strip("_").replace("_", " ") or kind
    last = f"{points[-1][1]:.2%}" if kind == "accuracy" else f"{points[-1][1]:.4g}"
    marker = "o" if len(points) <= 40 else None
    axes.plot(
        *zip(*points, strict=True), color=colour, linewidth=1.6, marker=marker, markersize=3, label=f"{what}  {last}"
    )
