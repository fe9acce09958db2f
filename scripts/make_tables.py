"""Write the tables of README and docs anew from results/ and benchmarks/results/: `python scripts/make_tables.py`.

Folders of comparisons (`torchcaps compare`) and of reproductions (`torchcaps reproduce`) may be named: what is in them
is entered into results/ first.
"""

from __future__ import annotations

import inspect
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import torch

from torchcaps import viz
from torchcaps.bench import compare_markdown, read_result, summary
from torchcaps.bench.compare_table import number
from torchcaps.models import MODELS, create_model, list_models, list_pretrained, pretrained_card
from torchcaps.reproduce import list_reproductions, load_reproduction
from torchcaps.reproduce import markdown as reproduction_markdown
from torchcaps.reproduce.table import machine_words

ROOT = Path(__file__).resolve().parent.parent
# What in results/ is not the runs of a recipe.
OTHERS = ("compare-", "reproduce-")
HEAD = (
    "| recipe | model | parameters | epochs | test accuracy | runs | minutes | machine |",
    "|---|---|---|---|---|---|---|---|",
)
# What the README shows of the reproductions: the network, and what is measured of it.
HEADLINES = (
    ("mnist_efficient", "Branched CapsNet, 282 K parameters", "error"),
    ("mnist_efficient", "Residual CapsNet, 252 K parameters", "error"),
    ("mnist_efficient", "Residual CapsNet, 252 K parameters, all 60,000 images", "error"),
    ("mnist_capsnet", "CapsNet, 3 iterations, reconstruction", "error"),
    ("multimnist", "Residual CapsNet, self-attention, reconstruction", "both right"),
    ("multimnist", "CNN", "both right"),
    ("smallnorb", "Matrix capsules, 68 K parameters", "error"),
    ("affine", "Matrix capsules, EM routing", "accuracy on affine_mnist"),
    ("affine", "CNN with global average pooling", "accuracy on affine_mnist"),
    ("affine", "CNN", "accuracy on affine_mnist"),
    ("viewpoints", "Matrix capsules, elevation", "novel error"),
    ("viewpoints", "CNN, elevation", "novel error"),
    ("digit_pairs", "Capsules, k-means routing", "both right"),
    ("digit_pairs", "CNN with global average pooling", "both right"),
)


def row(table: dict[str, Any]) -> str:
    """One recipe as a line of the table: the mean over its runs, with the deviation where there are several."""
    runs = table["runs"]
    accuracies = [100 * run["results"]["test_accuracy"] for run in runs]
    accuracy = f"{statistics.mean(accuracies):.2f} %"
    if len(runs) > 1:
        accuracy = f"{statistics.mean(accuracies):.2f} ± {statistics.stdev(accuracies):.2f} %"
    minutes = statistics.mean(run["seconds"] for run in runs) / 60
    cells = (
        f"`{table['recipe']}`",
        f"`{table['model']}`",
        f"{runs[0]['parameters']:,}",
        str(runs[0]["epochs"]),
        accuracy,
        str(len(runs)),
        f"{minutes:.1f}",
        machine_words(runs[0]),
    )
    return f"| {' | '.join(cells)} |"


def results(folder: Path = ROOT / "results") -> str:
    """What the recipes gave, in Markdown, ordered by recipe."""
    files = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(OTHERS)]
    return "\n".join([*HEAD, *(row(json.loads(file.read_text())) for file in files)])


def headlines(folder: Path = ROOT / "results") -> str:
    """Some numbers of the reproductions beside the papers', in Markdown; what is not measured yet is left out."""
    table = [
        "| what | network | in per cent | paper | ours | parameters | minutes |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for name, label, column in HEADLINES:
        file, entry = folder / f"reproduce-{name}.json", load_reproduction(name)
        paper = {network.label: network.paper.get(column) for network in entry.networks}[label]
        rows = json.loads(file.read_text())["rows"] if file.exists() else []
        for found in rows:
            if found["label"] == label and column in found["measured"]:
                cells = (
                    entry.title,
                    label,
                    column,
                    "" if paper is None else f"{paper:g}",
                    number(found["measured"][column], 2),
                    f"{found['parameters']:,}",
                    number(found["seconds"], 0, 1 / 60),
                )
                table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)


def comparison(folder: Path = ROOT / "results") -> str:
    """What the comparisons of routers gave, in Markdown, each with its picture."""
    parts = []
    for file in sorted(folder.glob("compare-*.json")):
        picture = f"![What was measured of each router](images/{file.stem}.svg)"
        result = json.loads(file.read_text())
        parts.append(f"## {result['comparison']}\n\n{compare_markdown(result)}\n\n{picture}\n")
    return "\n".join(parts) or "No comparison has been recorded yet."


def reproductions(folder: Path = ROOT / "results") -> str:
    """Every reproduction in Markdown, paper and ours side by side, whether it was run or not."""
    parts = []
    for name in list_reproductions():
        file = folder / f"reproduce-{name}.json"
        result = json.loads(file.read_text()) if file.exists() else None
        parts.append(reproduction_markdown(load_reproduction(name), result))
    return "\n".join(parts)


def enter(source: Path, folder: Path = ROOT / "results", pictures: Path = ROOT / "docs" / "images") -> list[Path]:
    """Put what a folder holds into results/, and its pictures into the docs; the files that it went into."""
    files = [enter_reproduction(file, folder, pictures) for file in sorted(source.glob("reproduction-*.json"))]
    if (source / "compare.json").exists():
        files.append(enter_comparison(source / "compare.json", folder, pictures))
    if not files:
        raise ValueError(f"{source}: expected compare.json or reproduction-NAME.json, got a folder without them")
    return files


def enter_comparison(source: Path, folder: Path, pictures: Path) -> Path:
    """Enter a finished comparison and draw its picture."""
    text = source.read_text()
    result = json.loads(text)
    if result["status"] != "finished":
        raise ValueError(f"{source}: expected a finished comparison, got one that is {result['status']}; run it again")
    file = folder / f"compare-{result['comparison']}.json"
    file.write_text(text)
    # Without a date and with fixed identifiers the same result gives the same picture.
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps"}):
        viz.comparison(result["rows"]).savefig(pictures / f"{file.stem}.svg", metadata={"Date": None})
    return file


def enter_reproduction(source: Path, folder: Path, pictures: Path) -> Path:
    """Enter a reproduction, as far as it has been run, beside what is recorded of it already, and copy its pictures."""
    new = json.loads(source.read_text())
    if new["changes"]:
        raise ValueError(f"{source}: expected the recipes as they are, got changed ones ({', '.join(new['changes'])})")
    file = folder / f"reproduce-{new['reproduction']}.json"
    result = merged(json.loads(file.read_text()), new) if file.exists() else new
    # A picture that lacks a network of the table does not take the place of one that has it.
    lacking = result["rows"] != new["rows"]
    for name, picture in new["pictures"].items():
        target = pictures / f"{file.stem}-{name}.png"
        if not (lacking and target.exists()):
            shutil.copyfile(source.parent / picture, target)
    file.write_text(json.dumps(result, indent=1) + "\n")
    return file


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A reproduction with what is new in it, and the networks and pictures that only the old one has.

    Networks may have been trained on several machines, or on one that has forgotten its runs.
    """

    def done(row: dict[str, Any]) -> bool:
        return any(run["status"] == "finished" for run in row["runs"])

    there = {row["label"]: row for row in old["rows"]}
    rows = [row if done(row) else there.get(row["label"], row) for row in new["rows"]]
    status = "finished" if all(map(done, rows)) else new["status"]
    return {**new, "rows": rows, "status": status, "pictures": {**old["pictures"], **new["pictures"]}}


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


def shipped() -> str:
    """The cards of the weights that come along, in Markdown: a table, then what each is not good for."""
    cards = [pretrained_card(name) for name in list_pretrained()]
    if not cards:
        return "None yet."
    lines = [
        "| weights | network | parameters | MB | data | licence of the data | test accuracy | trained |",
        "|---|---|---:|---:|---|---|---:|---|",
    ]
    for card in cards:
        cells = (
            f"`{card.name}`",
            f"`{card.model}`",
            f"{card.parameters:,}",
            f"{card.weights.stat().st_size / 1e6:.2f}",
            f"`{card.data['name']}`",
            card.data_licence,
            f"{card.test_accuracy:.2%} of {card.test_images:,}",
            f"recipe `{card.recipe['name']}`, {card.epochs} epochs, {card.seconds / 60:.1f} minutes",
        )
        lines.append(f"| {' | '.join(cells)} |")
    for card in cards:
        only = " For research only." if card.research_only else ""
        commit = f"Commit {card.commit}" if card.commit else "Commit unknown"
        born = f"{commit}, seed {card.seed}, torch {card.versions['torch']}, {card.machine['processor']}."
        lines += ["", f"- `{card.name}`: {' '.join(card.limits)}{only} {born}"]
    return "\n".join(lines)


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"headlines": headlines, "results": results, "speed": speed},
    "docs/comparison.md": {"comparison": comparison},
    "docs/models.md": {"models": models, "shipped weights": shipped},
    "docs/reproductions.md": {"reproductions": reproductions},
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
        print(*enter(Path(source)), sep="\n")
    for page in PAGES:
        (ROOT / page).write_text(update((ROOT / page).read_text(), page))
