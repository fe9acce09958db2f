"""The report of a reproduction: one page with the table, the pictures and the recipes."""

from __future__ import annotations

from pathlib import Path

from torchcaps.eval._page import Section, page
from torchcaps.reproduce.table import Result, lines


def write_report(result: Result, folder: str | Path) -> Path:
    """Write `report-NAME.html` from a result and its pictures; the page needs nothing outside itself."""
    folder = Path(folder)
    runs = [run for row in result["rows"] for run in row["runs"]]
    finished = [run for run in runs if run["status"] == "finished"]
    facts = {
        "runs finished": f"{len(finished)} of {len(runs)}",
        "networks": str(len(result["rows"])),
        "minutes of training": f"{sum(run['seconds'] for run in finished) / 60:.1f}",
    }
    words = "All numbers are per cent; ours are the mean and deviation over the runs that are finished."
    if result["changes"]:
        words += f" The recipes were changed: {', '.join(result['changes'])}."
    sections = [Section("Paper and ours", words, lines=lines(result, machine=True))]
    for name, file in result["pictures"].items():
        title = name.replace("_", " ").capitalize()
        sections.append(Section(title, "", f"{title} of {result['title']}", (folder / file).read_bytes()))
    for name, why in result["not drawn"].items():
        sections.append(Section(name.replace("_", " ").capitalize(), f"Left out: {why}."))
    tables = {row["label"]: row["recipe"] for row in result["rows"]}
    path = folder / f"report-{result['reproduction']}.html"
    lead = f"{result['source']}. {result['note']}".strip()
    path.write_text(page(result["title"], lead, facts, sections, tables), encoding="utf-8")
    return path
