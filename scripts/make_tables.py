"""Write the README's tables anew from results/ and benchmarks/results/: `python scripts/make_tables.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from torchcaps.bench import read_result, summary

ROOT = Path(__file__).resolve().parent.parent
HEAD = (
    "| recipe | model | parameters | epochs | test accuracy | runs | minutes | machine |",
    "|---|---|---|---|---|---|---|---|",
)


def row(table: dict[str, Any]) -> str:
    """One recipe as a line of the table: the mean over its runs, with the deviation where there are several."""
    runs = table["runs"]
    accuracies = [100 * run["results"]["test_accuracy"] for run in runs]
    accuracy = f"{statistics.mean(accuracies):.2f} %"
    if len(runs) > 1:
        accuracy = f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f} %"
    minutes = statistics.mean(run["seconds"] for run in runs) / 60
    machine = f"{runs[0]['machine']['cores']} cores, {runs[0]['machine']['processor']}"
    cells = (
        f"`{table['recipe']}`",
        f"`{table['model']}`",
        f"{runs[0]['parameters']:,}",
        str(runs[0]["epochs"]),
        accuracy,
        str(len(runs)),
        f"{minutes:.1f}",
        machine,
    )
    return f"| {' | '.join(cells)} |"


def results(folder: Path = ROOT / "results") -> str:
    """What the recipes gave, in Markdown, ordered by recipe."""
    tables = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return "\n".join([*HEAD, *(row(table) for table in tables)])


def speed(file: Path = ROOT / "benchmarks" / "results" / "dynamic.json") -> str:
    """The routing layer at the size of the paper, in Markdown."""
    head, *lines = summary(read_result(file))
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


TABLES = {"results": results, "speed": speed}


def update(text: str) -> str:
    """The text with each table between its two marks."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: made by scripts/make_tables.py -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"README.md: expected the marks '{begin}' and '{end}', got text without them")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(update(readme.read_text()))
