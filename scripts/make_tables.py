"""Write the tables of README and docs anew from results/ and benchmarks/results/: `python scripts/make_tables.py`.

Folders of finished comparisons (`torchcaps compare`) may be named: they are entered into results/ first.
"""

from __future__ import annotations

import inspect
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import torch

from torchcaps import viz
from torchcaps.bench import compare_markdown, read_result, summary
from torchcaps.models import MODELS, create_model, list_models

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
    files = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith("compare-")]
    return "\n".join([*HEAD, *(row(json.loads(file.read_text())) for file in files)])


def comparison(folder: Path = ROOT / "results") -> str:
    """What the comparisons of routers gave, in Markdown, each with its picture."""
    parts = []
    for file in sorted(folder.glob("compare-*.json")):
        picture = f"![Accuracy and seconds per epoch of each router](images/{file.stem}.svg)"
        result = json.loads(file.read_text())
        parts.append(f"## {result['comparison']}\n\n{compare_markdown(result)}\n\n{picture}\n")
    return "\n".join(parts) or "No comparison has been recorded yet."


def enter(source: Path, folder: Path = ROOT / "results", pictures: Path = ROOT / "docs" / "images") -> Path:
    """Put a finished comparison into results/ and its picture into the docs; the file that it went into."""
    text = (source / "compare.json").read_text()
    result = json.loads(text)
    if result["status"] != "finished":
        raise ValueError(f"{source}: expected a finished comparison, got one that is {result['status']}; run it again")
    file = folder / f"compare-{result['comparison']}.json"
    file.write_text(text)
    # Without a date and with fixed identifiers the same result gives the same picture.
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps"}):
        viz.comparison(result["rows"]).savefig(pictures / f"{file.stem}.svg", metadata={"Date": None})
    return file


def speed(file: Path = ROOT / "benchmarks" / "results" / "dynamic.json") -> str:
    """The routing layer at the size of the paper, in Markdown."""
    head, *lines = summary(read_result(file))
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def models() -> str:
    """Every network of the registry with its size, in Markdown."""
    lines = ["| name | parameters | what it is |", "|---|---:|---|"]
    for name in list_models():
        with torch.device("meta"):
            model = create_model(name)
        count = sum(parameter.numel() for parameter in model.parameters())
        what = (inspect.getdoc(MODELS[name]) or "").partition("\n")[0]
        lines.append(f"| `{name}` | {count:,} | {what} |")
    return "\n".join(lines)


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"results": results, "speed": speed},
    "docs/comparison.md": {"comparison": comparison},
    "docs/models.md": {"models": models},
}


def update(text: str, page: str = "README.md") -> str:
    """The text of a page with each table between its two marks."""
    for name, make in PAGES[page].items():
        begin, end = f"<!-- {name}: made by scripts/make_tables.py -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{page}: expected the marks '{begin}' and '{end}', got text without them")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


if __name__ == "__main__":
    for source in sys.argv[1:]:
        print(enter(Path(source)))
    for page in PAGES:
        (ROOT / page).write_text(update((ROOT / page).read_text(), page))
