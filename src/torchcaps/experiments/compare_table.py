"""The table of a comparison, as lines of cells and in Markdown."""

from __future__ import annotations

from torchcaps.experiments.comparison import Comparison, RouterRow
from torchcaps.experiments.statistics import format_percent, format_statistic


def compare_lines(result: Comparison) -> list[list[str]]:
    """Return the comparison as lines of cells, the header first.

    Columns without any value are omitted from the end of the table; reasons of failures are the last column.

    Args:
        result: The comparison.

    Returns:
        Lines of cells.

    Example:
        >>> compare_lines(read_json(Comparison, Path('runs/compare-digits/compare.json')))[0]  # doctest: +SKIP
    """
    columns = ["router", "parameters", "test accuracy", *(f"on {name}" for name in result.tests), "val accuracy"]
    columns += ["runs", "s per epoch", "minutes", "step, MB", "entropy", "changed", "dead"]
    optional = [
        (title, cells)
        for title, cells in (
            ("F1 (macro)", [format_percent(row.f1_macro, 2) for row in result.rows]),
            ("logit change", [format_statistic(row.logit_change, 3) for row in result.rows]),
            ("gradient norm", [format_statistic(row.gradient_norm, 4) for row in result.rows]),
            ("note", [_note(row) for row in result.rows]),
        )
        if any(cells)
    ]
    lines = [[*columns, *(title for title, _ in optional)]]
    for number, row in enumerate(result.rows):
        lines.append([*_cells(row, result.tests), *(cells[number] for _, cells in optional)])
    return lines


def compare_markdown(result: Comparison) -> str:
    """Return the comparison in Markdown: its provenance and the table.

    Args:
        result: The comparison.

    Returns:
        Markdown text.

    Example:
        >>> print(compare_markdown(read_json(Comparison, Path('runs/compare-digits/compare.json'))))  # doctest: +SKIP
    """
    machine, versions, recipe = result.machine, result.versions, result.recipe
    lines = compare_lines(result)
    head, *rest = (f"| {' | '.join(cells)} |" for cells in lines)
    rule = f"|---|{'---:|' * (len(lines[0]) - 1)}"
    provenance = (
        f"`{recipe['model']['name']}` on `{recipe['data']['name']}`, {recipe['trainer']['epochs']} epochs, "
        f"seeds {', '.join(map(str, result.seeds))}; {machine['processor']}, {machine['threads']} threads, "
        f"torch {versions['torch']}, torchcaps {versions['torchcaps']} (commit {(result.commit or 'unknown')[:12]}), "
        f"{result.date[:10]}."
    )
    return "\n".join([provenance, "", head, rule, *rest])


def _cells(row: RouterRow, tests: list[str]) -> list[str]:
    return [
        row.router,
        "" if row.parameters is None else f"{row.parameters:,}",
        format_percent(row.test_accuracy, 2),
        *(format_percent(row.tests.get(name), 2) for name in tests),
        format_percent(row.val_accuracy, 2),
        str(sum(run.status == "finished" for run in row.runs)),
        format_statistic(row.epoch_seconds, 2),
        format_statistic(row.seconds, 1, 1 / 60),
        "" if row.memory_mb is None else f"{row.memory_mb:.0f}",
        format_statistic(row.entropy, 3),
        format_percent(row.changed, 1),
        format_percent(row.dead, 1),
    ]


def _note(row: RouterRow) -> str:
    errors = [run.error for run in row.runs]
    # If all seeds fail alike, one reason is enough.
    if len(errors) > 1 and len(set(errors)) == 1 and errors[0] is not None:
        return errors[0]
    reasons = [f"seed {run.seed}: {run.error}" for run in row.runs if run.error]
    return "; ".join([*reasons, *([f"memory: {row.memory_error}"] if row.memory_error else [])])
