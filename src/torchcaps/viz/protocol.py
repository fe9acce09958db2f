"""Accuracies of a protocol: bars for one column, curves for several."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ShapeError
from torchcaps.viz._style import INK, LABEL, NOTE, TITLE, line_style, new_figure, shorten, style_axes


def protocol(
    names: Sequence[str],
    columns: Sequence[str],
    accuracies: Sequence[Sequence[float]],
    title: str = "",
    column_axis: str = "",
) -> Figure:
    """Draw the accuracies of a protocol: one curve per row, or bars for one column or columns without an axis.

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
    bars = len(columns) == 1 or not column_axis
    figure = new_figure(6.4, 0.9 + 0.36 * len(names) * len(columns) if bars else 4.0)
    axes = style_axes(figure.add_subplot(), grid=not bars)
    if bars:
        places = range(len(names))
        height = 0.6 / len(columns)
        for number, column in enumerate(columns):
            values = [line[number] for line in accuracies]
            shifted = [place + height * (number - (len(columns) - 1) / 2) for place in places]
            axes.barh(shifted, values, color=line_style(number)["color"], height=height, label=column)
            for place, value in zip(shifted, values, strict=True):
                axes.text(value + 0.01, place, f"{value:.2%}", va="center", **NOTE)
        axes.set_yticks(places, [shorten(name, 28) for name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel(", ".join(columns), **LABEL)
        if len(columns) > 1:
            axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1.0, 0.5))
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
