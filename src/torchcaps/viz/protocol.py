"""Accuracies of a protocol: bars for one column, curves for several, and further curves beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from torchcaps.errors import ShapeError
from torchcaps.viz._style import INK, LABEL, NOTE, TITLE, line_style, new_figure, shorten, style_axes

if TYPE_CHECKING:
    from torchcaps.evaluation import Curve, ProtocolResult


def protocol_result(result: ProtocolResult) -> Figure:
    """Draw the result of a protocol: its table, or its curves where it has some, beside the table as bars.

    Args:
        result: What a protocol of `evaluation.PROTOCOLS` returned.

    Returns:
        The figure.

    Example:
        >>> from torchcaps.evaluation import ProtocolResult, ProtocolRow
        >>> row = ProtocolRow("familiar", 10, (0.9,))
        >>> len(protocol_result(ProtocolResult("p", "How?", "digits", "", ("accuracy",), (row,))).axes)
        1
    """
    names, values = [row.name for row in result.rows], [row.accuracies for row in result.rows]
    if not result.curves:
        return protocol(names, result.columns, values, result.question, result.column_axis)
    bars, count = 0.22 * len(names) * len(result.columns), len(result.curves)
    figure = new_figure(3.4 * max(2, count), 3.4 + bars)
    grid = figure.add_gridspec(2, count, height_ratios=[0.4 + bars, 2.6])
    _draw_scores(style_axes(figure.add_subplot(grid[0, :]), grid=False), result)
    for place, curve in enumerate(result.curves):
        _draw_curve(style_axes(figure.add_subplot(grid[1, place])), curve, legend=place == 0)
    return figure


def _draw_scores(axes: Axes, result: ProtocolResult) -> None:
    """Draw bars of numbers that may be negative, with their intervals."""
    height = 0.8 / len(result.rows)
    for number, row in enumerate(result.rows):
        places = [place + height * (number - (len(result.rows) - 1) / 2) for place in range(len(result.columns))]
        values = [max(0.0, value) for value in row.accuracies]
        style = {"color": line_style(number)["color"], "height": 0.9 * height, "label": row.name}
        axes.barh(places, values, **style)
        for place, value, limits in zip(places, row.accuracies, row.intervals or (None,) * len(places), strict=True):
            end = max(0.0, value)
            if limits is not None:
                axes.plot([max(0.0, limit) for limit in limits], [place, place], color=INK, linewidth=1)
                end = max(end, limits[1])
            axes.text(end + 0.01, place, f"{value:.2f}", va="center", **NOTE)
    axes.set_yticks(range(len(result.columns)), [shorten(column, 28) for column in result.columns])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12)
    axes.set_title(result.question, **TITLE)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_curve(axes: Axes, curve: Curve, *, legend: bool) -> None:
    for number, (name, line) in enumerate(curve.lines.items()):
        axes.plot(curve.at, line, label=name, **line_style(number))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{curve.name}, {curve.axis}", **LABEL)
    if legend:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


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
