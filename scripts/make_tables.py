"""Write the README's table anew from results/*.json: `python scripts/make_tables.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- results: made by scripts/make_tables.py from results/*.json -->"
END = "<!-- end of results -->"
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


def render(results: Path = ROOT / "results") -> str:
    """The whole table in Markdown, ordered by recipe."""
    tables = [json.loads(file.read_text()) for file in sorted(results.glob("*.json"))]
    return "\n".join([*HEAD, *(row(table) for table in tables)])


def update(text: str, table: str) -> str:
    """The text with the table between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(update(readme.read_text(), render()))
