"""Accuracies of a protocol: bars for one column, curves for several."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ShapeError
from torchcaps.viz._style import ACCENT, INK, LABEL, NOTE, TITLE, line_style, new_figure, shorten, style_axes


def protocol(
    names: Sequence[str],
    columns: Sequence[str],
    accuracies: Sequence[Sequence[float]],
    title: str = "",
    column_axis: str = "",
) -> Figure:
    """Draw the accuracies of a protocol: bars for one column, one curve per row for several.

    Args:
        names: Names of the rows.
        columns: Names of the columns.
        accuracies: One row of accuracies in [0, 1] per name.
        title: Title of the figure.
        column_axis: Quantity that the columns stand for, such as "severity"; label of the horizontal axis of curves.

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no rows, or rows and columns do not fit.

    Example:
        >>> len(protocol(["familiar", "novel"], ["accuracy"], [[0.9], [0.7]]).axes[0].patches)
        2
    """
    if not names or len(accuracies) != len(names) or any(len(line) != len(columns) for line in accuracies):
        raise ShapeError(
            f"accuracies: expected {len(names)} rows of {len(columns)} values, got rows of "
            f"{[len(line) for line in accuracies]} values"
        )
    bars = len(columns) == 1
    figure = new_figure(6.4, 0.9 + 0.36 * len(names) if bars else 4.0)
    axes = style_axes(figure.add_subplot(), grid=not bars)
    if bars:
        places = range(len(names))
        values = [line[0] for line in accuracies]
        axes.barh(places, values, color=ACCENT, height=0.6)
        axes.set_yticks(places, [shorten(name, 28) for name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel(columns[0], **LABEL)
        for place, value in zip(places, values, strict=True):
            axes.text(value + 0.01, place, f"{value:.2%}", va="center", **NOTE)
    else:
        for number, (name, line) in enumerate(zip(names, accuracies, strict=True)):
            axes.plot(columns, line, label=name, **line_style(number))
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel(column_axis, **LABEL)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if title:
        axes.set_title(title, **TITLE)
    return figure
