"""Tables and a figure from the result of a benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from torchcaps._files import read_bounded, write_figure, write_text
from torchcaps.bench.run import Result
from torchcaps.errors import DataError
from torchcaps.viz._style import ACCENT, FAINT, INK, LABEL, MUTED, TITLE, WARM, new_figure, style_axes

Row = dict[str, Any]

# The first candidate has the accent colour.
_COLOURS = (ACCENT, INK, MUTED, "#c9a227", WARM)


def read_result(path: Path) -> Result:
    """Read a result that `write_result` wrote.

    Args:
        path: The file.

    Returns:
        The result.

    Raises:
        DataError: If the file is missing or no JSON.

    Example:
        >>> read_result(Path("benchmarks/results/dynamic.json"))["title"]  # doctest: +SKIP
    """
    try:
        return json.loads(read_bounded(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected the result of a benchmark as JSON, got {error}") from None


def render(result: Result, folder: Path) -> list[Path]:
    """Write `<benchmark>.md` and, if sizes vary, `<benchmark>.svg`.

    Args:
        result: The result.
        folder: The folder of the files.

    Returns:
        The written files.

    Example:
        >>> render(read_result(Path("benchmarks/results/dynamic.json")), Path("docs/benchmarks"))  # doctest: +SKIP
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{result['benchmark']}.md"
    text = table(result)
    written = [page]
    if sweeps(result):
        figure = folder / f"{result['benchmark']}.svg"
        # Without a date and with fixed identifiers, equal results give equal files.
        with matplotlib.rc_context({"svg.hashsalt": "torchcaps"}):
            write_figure(figure, plot(result), metadata={"Date": None})
        text += f"\n![{result['title']}]({figure.name})\n"
        written.append(figure)
    write_text(page, text)
    return written


def sweeps(result: Result) -> dict[str, list[int]]:
    """Return the axes along which points differ from the first, with all their values in order."""
    base = result["rows"][0]["point"]
    values: dict[str, set[int]] = {}
    for row in result["rows"]:
        moved = [axis for axis, value in row["point"].items() if value != base[axis]]
        if len(moved) == 1:
            values.setdefault(moved[0], {base[moved[0]]}).add(row["point"][moved[0]])
    return {axis: sorted(each) for axis, each in values.items()}


def summary(result: Result) -> list[list[str]]:
    """Return the first point as lines of cells, the header first.

    Args:
        result: Result of a benchmark.

    Returns:
        Lines of cells.

    Example:
        >>> summary(run_case("dynamic", quick=True))  # doctest: +SKIP
    """
    return _full_table(list(_at(result, result["rows"][0]["point"]).values()))


def table(result: Result) -> str:
    """Return the result in Markdown: the first point, one table per axis, then the other points."""
    base = result["rows"][0]["point"]
    parts = [_provenance(result), _markdown(summary(result))]
    names = list(dict.fromkeys(row["candidate"] for row in result["rows"]))
    for axis, values in sweeps(result).items():
        lines = [[axis, *names]]
        for value in values:
            rows = _at(result, {**base, axis: value})
            lines.append([str(value), *(_time_cell(rows[name]) for name in names)])
        parts.append(f"{_last_task(result)} in milliseconds by {axis}, other sizes as above:\n\n{_markdown(lines)}")
    for point in _apart(result):
        where = ", ".join(f"{axis} {value}" for axis, value in point.items())
        parts.append(f"At {where}:\n\n{_markdown(_full_table(list(_at(result, point).values())))}")
    return "\n".join(parts)


def plot(result: Result) -> Figure:
    """Draw the time of the last task, and the peak memory if measured, along every axis."""
    axes_taken = sweeps(result)
    measures = ["time"] + ["memory"] * any("memory" in row for row in result["rows"])
    figure = new_figure(3.1 * len(axes_taken), 2.9 * len(measures))
    for line, measure in enumerate(measures):
        for place, (axis, values) in enumerate(axes_taken.items()):
            number = line * len(axes_taken) + place + 1
            beside = figure.axes[-1] if place else None
            panel = style_axes(figure.add_subplot(len(measures), len(axes_taken), number, sharey=beside))
            _curves(panel, result, axis, values, measure)
            panel.set_xlabel(axis, **LABEL)
            if place == 0:
                panel.set_ylabel(f"{_last_task(result)}, ms" if measure == "time" else "extra memory, MB", **LABEL)
    figure.axes[0].set_title(result["title"], **TITLE)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return figure


def _curves(panel: Axes, result: Result, axis: str, values: list[int], measure: str) -> None:
    base = result["rows"][0]["point"]
    task = _last_task(result)
    names = list(dict.fromkeys(row["candidate"] for row in result["rows"]))
    for number, name in enumerate(names):
        points: list[tuple[int, float]] = []
        for value in values:
            row = _at(result, {**base, axis: value})[name]
            amount = row.get("times", {}).get(task, {}).get("min")
            if measure == "memory":
                memory = row.get("memory")
                amount = memory[task] if isinstance(memory, dict) else None
            if amount is not None:
                points.append((value, amount * 1e3 if measure == "time" else amount))
        if points:
            colour = _COLOURS[number % len(_COLOURS)]
            panel.plot(*zip(*points, strict=True), color=colour, label=name, marker="o", markersize=3, linewidth=1.4)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(values, [str(value) for value in values])
    panel.minorticks_off()
    panel.grid(axis="both", color=FAINT, linewidth=0.6)


def _provenance(result: Result) -> str:
    machine, versions = result["machine"], result["versions"]
    commit = (result["commit"] or "unknown")[:12]
    kernels = [
        f"{kernel['algorithm']} on {kernel['backend']} ({kernel['detail']})"
        for kernel in result["kernels"]
        if kernel["available"]
    ]
    return (
        f"# {result['title']}\n\nMinimum over several rounds; median in brackets. Candidates take turns. "
        f"{_about(result)}{machine['processor']}, {machine['threads']} threads, torch {versions['torch']}, "
        f"torchcaps {versions['torchcaps']} (commit {commit}), "
        f"kernels: {', '.join(kernels)}, {result['date'][:10]}.\n"
    )


def _about(result: Result) -> str:
    """Return a sentence on the time of the processor, if it is shown."""
    if _kind(result) == "times":
        return ""
    loads = sorted(load for load in result["load"] if load is not None)
    load = f", at a load of {loads[0]:g} to {loads[-1]:g}" if loads else ""
    return f"The time is that of the processor{load}. "


def _full_table(rows: list[Row]) -> list[list[str]]:
    tasks = list(dict.fromkeys(task for row in rows for task in row.get("times", {})))
    with_memory = any("memory" in row for row in rows)
    with_rate = any("gflops" in row for row in rows)
    header = ["", *(f"{task}, ms" for task in tasks), "relative time"]
    header += ["extra memory, MB"] * with_memory + ["GFLOP/s"] * with_rate
    ours = rows[0].get("times", {}).get(tasks[-1], {}).get("min") if tasks else None
    lines = [header]
    for row in rows:
        times = [row.get("times", {}).get(task) for task in tasks]
        cells = [f"{1e3 * time['min']:.1f} ({1e3 * time['median']:.1f})" if time else "" for time in times]
        cells.append(f"{times[-1]['min'] / ours:.2f}" if tasks and times[-1] and ours else row.get("error", ""))
        cells += [_memory_cell(row)] * with_memory + [f"{row['gflops']:.0f}" if "gflops" in row else ""] * with_rate
        lines.append([row["candidate"], *cells])
    return lines


def _memory_cell(row: Row) -> str:
    memory = row.get("memory", "")
    return f"{max(memory.values()):.0f}" if isinstance(memory, dict) else memory


def _time_cell(row: Row) -> str:
    if "error" in row:
        return row["error"].partition(":")[0]
    return f"{1e3 * list(row['times'].values())[-1]['min']:.1f}"


def _last_task(result: Result) -> str:
    return next((list(row["times"])[-1] for row in result["rows"] if row.get("times")), "")


def _at(result: Result, point: dict[str, int]) -> dict[str, Row]:
    """Return the rows of a point by candidate; with one thread their times are those of the processor."""
    rows = {row["candidate"]: row for row in result["rows"] if row["point"] == point}
    kind = _kind(result)
    return {name: {**row, "times": row[kind]} if kind in row else row for name, row in rows.items()}


def _kind(result: Result) -> str:
    """Return which times are shown; those of the processor are sums over threads, and missing in older results."""
    one = result["machine"]["threads"] == 1 and any("processor" in row for row in result["rows"])
    return "processor" if one else "times"


def _apart(result: Result) -> Iterator[dict[str, int]]:
    """Yield the points that differ from the first along more than one axis."""
    base = result["rows"][0]["point"]
    seen: list[dict[str, int]] = []
    for row in result["rows"]:
        if sum(value != base[axis] for axis, value in row["point"].items()) > 1 and row["point"] not in seen:
            seen.append(row["point"])
            yield row["point"]


def _markdown(lines: list[list[str]]) -> str:
    header, *rest = [f"| {' | '.join(cells)} |" for cells in lines]
    rule = f"|---|{'---:|' * (len(lines[0]) - 1)}"
    return "\n".join([header, rule, *rest]) + "\n"
