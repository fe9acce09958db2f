"""The table of a reproduction, paper and ours side by side, as lines of cells and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchcaps.experiments.metrics import METRICS, with_direction
from torchcaps.experiments.recorded import RecordedNetwork
from torchcaps.experiments.reproduction_result import (
    NetworkMetrics,
    NetworkRow,
    ReproductionResult,
    summarize_network,
)
from torchcaps.experiments.reproductions import Reproduction, plan_runs
from torchcaps.experiments.statistics import Statistic, format_statistic
from torchcaps.train.recipe import TrainerRecipe

DEFAULT_PRECISION = TrainerRecipe().precision


def reproduction_lines(
    rows: Sequence[NetworkRow],
    columns: Sequence[str],
    *,
    machine: bool = False,
    same_experiment: bool = True,
    recorded: Mapping[str, RecordedNetwork] | None = None,
    trial: bool = False,
) -> list[list[str]]:
    """Return the table as lines of cells, the header first: one line per network and column.

    Args:
        rows: The networks.
        columns: Columns of the metric, in order.
        machine: Whether to add a column with the machine.
        same_experiment: Whether networks and protocol are the paper's; if not, its numbers are in parentheses.
        recorded: Recorded results by label, for a column of their own.
        trial: Whether the recipes were changed.

    Returns:
        The lines; notes are the last column if there are any.

    Example:
        >>> reproduction_lines([], ["error"])[0][:2]  # doctest: +SKIP
    """
    notes = [_note(row) for row in rows]
    header = ["network", "per cent", "paper", *(["recorded"] if recorded else []), "trial" if trial else "ours"]
    header += ["epochs", "parameters", "minutes", "runs"]
    lines = [header + ["machine"] * machine + ["note"] * any(notes)]
    for row, note in zip(rows, notes, strict=True):
        details = [
            _mean(row.epochs, 0),
            "" if row.parameters is None else f"{row.parameters:,}",
            _mean(row.seconds, 1, 1 / 60),
            str(len(row.finished)),
            *(["; ".join(dict.fromkeys(map(format_machine, row.finished)))] if machine else []),
            *([note] if any(notes) else []),
        ]
        kept = recorded[row.label].columns if recorded and row.label in recorded else {}
        known = {*row.paper, *row.columns, *kept}
        for number, column in enumerate([name for name in columns if name in known] or [""]):
            paper = row.paper.get(column)
            published = "" if paper is None else f"{paper:g}" if same_experiment else f"({paper:g})"
            cells = [with_direction(column), published]
            cells += [format_statistic(kept.get(column), 2)] if recorded else []
            cells.append(format_statistic(row.columns.get(column), 2))
            first = number == 0
            lines.append([row.label if first else "", *cells, *(details if first else [""] * len(details))])
    return lines


def reproduction_markdown(entry: Reproduction, result: ReproductionResult | None, figures: str = "images") -> str:
    """Return the section of a reproduction in Markdown.

    Args:
        entry: The reproduction, which gives the paper's numbers.
        result: The recorded result, or None. Rows whose recipes have changed since are marked.
        figures: The folder of the figures, which are named `reproduce-NAME-FIGURE.png`.

    Returns:
        Heading, source, command, table and figures.

    Example:
        >>> from torchcaps.experiments import load_reproduction
        >>> print(reproduction_markdown(load_reproduction("mnist_table1"), None))  # doctest: +SKIP
    """
    rows = current_rows(entry, result)
    lines = reproduction_lines(rows, METRICS[entry.metric].columns, machine=True, same_experiment=entry.same_experiment)
    rule = ["---", "---", *["---:"] * 6, *["---"] * (len(lines[0]) - 8)]
    table = [[cell.replace("|", "\\|") for cell in cells] for cells in (lines[0], rule, *lines[1:])]
    finished = any(row.finished for row in rows)
    parts = [
        f"## {entry.title}",
        f"{entry.source}. {entry.note}".strip(),
        f"`torchcaps reproduce {entry.name}`" + ("" if finished else ": not run yet."),
        "\n".join(f"| {' | '.join(cells)} |" for cells in table),
    ]
    for name, figure in (result.figures if result else {}).items():
        parts.append(f"![{figure.alt}]({figures}/reproduce-{entry.name}-{name}.png)")
    return "\n\n".join(parts) + "\n"


def current_rows(entry: Reproduction, result: ReproductionResult | None) -> list[NetworkRow]:
    """Return a row for each network of the reproduction, with the paper's current numbers."""
    recorded = {row.label: row for row in result.rows} if result else {}
    planned = {(run.label, run.folder) for run in plan_runs(entry)}
    rows = []
    for network in entry.networks:
        row = recorded.get(network.label) or summarize_network(network, [], {})
        folders = [run.folder for run in row.runs if run.status == "finished"]
        outdated = any((network.label, folder) not in planned for folder in folders)
        rows.append(replace(row, paper=network.paper, outdated=outdated))
    return rows


def format_machine(metrics: NetworkMetrics) -> str:
    """Return the machine of a run, with its precision unless it is the default.

    Args:
        metrics: Metrics of a run.

    Returns:
        Cores, processor and precision.

    Example:
        >>> format_machine(NetworkMetrics({}, 1, 2, 3.0, {"cores": 1, "processor": "EPYC"}, precision="bf16-mixed"))
        '1 core, EPYC, bf16-mixed'
    """
    cores = metrics.machine["cores"]
    words = [f"{cores} core{'s' * (cores != 1)}", metrics.machine["processor"]]
    return ", ".join(words if metrics.precision in (None, DEFAULT_PRECISION) else [*words, metrics.precision])


def _mean(value: Statistic | None, digits: int, scale: float = 1) -> str:
    return "" if value is None else f"{scale * value.mean:.{digits}f}"


def _note(row: NetworkRow) -> str:
    errors = [f"seed {run.seed}: {run.error}" for run in row.runs if run.error]
    warnings = [f"seed {run.seed}: {run.metrics.warning}" for run in row.runs if run.metrics and run.metrics.warning]
    return "; ".join([*errors, *warnings, *(["the recipe has changed since"] if row.outdated else [])])
