"""The report of a reproduction: one HTML page with the table, the figures and the recipes."""

from __future__ import annotations

from pathlib import Path

from torchcaps._files import read_bounded, write_text
from torchcaps.experiments.reproduction_result import ReproductionResult
from torchcaps.experiments.reproduction_table import reproduction_lines
from torchcaps.report._page import Section, page
from torchcaps.report.registry import FIGURES


def write_reproduction_report(result: ReproductionResult, folder: str | Path) -> Path:
    """Write `report-NAME.html` from a result and its figures.

    The page contains its style and figures and loads nothing from outside.

    Args:
        result: The result.
        folder: The folder of the reproduction.

    Returns:
        The path of the page.

    Example:
        >>> write_reproduction_report(result, "runs/reproduce")  # doctest: +SKIP
    """
    folder = Path(folder)
    finished = [metrics for row in result.rows for metrics in row.finished]
    facts = {
        "runs finished": f"{len(finished)} of {sum(len(row.runs) for row in result.rows)}",
        "networks": str(len(result.rows)),
        "minutes of training": f"{sum(metrics.seconds for metrics in finished) / 60:.1f}",
    }
    text = (
        "All numbers are percentages: ↓ lower is better, ↑ higher is better. Ours are mean and standard deviation over "
    )
    text += "the finished runs."
    if not result.same_experiment:
        text += " The paper's numbers are in parentheses, because its networks or its protocol differ."
    if result.changes:
        text += f" The recipes were changed: {', '.join(result.changes)}."
    lines = reproduction_lines(
        result.rows,
        result.columns,
        machine=True,
        same_experiment=result.same_experiment,
        trial=bool(result.changes),
    )
    sections = [Section("Paper and ours", text, lines=lines)]
    for name, figure in result.figures.items():
        png = read_bounded(folder / figure.file)
        sections.append(Section(FIGURES[name].title, figure.caption, figure.alt, png))
    for name, reason in result.failed_figures.items():
        sections.append(Section(FIGURES[name].title, f"Not available: {reason}."))
    tables = {row.label: row.recipe for row in result.rows}
    path = folder / f"report-{result.name}.html"
    write_text(path, page(result.heading, result.lead, facts, sections, tables))
    return path
