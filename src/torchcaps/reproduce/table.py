"""What a reproduction came to, paper and ours side by side, as lines of cells and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchcaps.bench.compare_table import Spread, number, spread
from torchcaps.reproduce.entry import Network, Reproduction, plan
from torchcaps.reproduce.measures import MEASURES
from torchcaps.train.recipe import TrainerRecipe

Result = dict[str, Any]

USUAL = TrainerRecipe().precision


def summarise(network: Network, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One network: its runs, and the spread of everything that was measured in those that finished."""
    finished = [run for run in runs if run["status"] == "finished"]
    columns = list(dict.fromkeys(name for run in finished for name in run["measured"]))
    return {
        "label": network.label,
        "paper": network.paper,
        "measured": {name: spread(run["measured"].get(name) for run in finished) for name in columns},
        "epochs": spread(run["epochs"] for run in finished),
        "seconds": spread(run["seconds"] for run in finished),
        "parameters": next((run["parameters"] for run in finished), None),
        "runs": list(runs),
    }


def lines(result: Result, *, machine: bool = False) -> list[list[str]]:
    """The table as lines of cells, the header first: a line for each network and column; reasons stand last, if any."""
    notes = [_note(row) for row in result["rows"]]
    header = ["network", "in per cent", "paper", "ours", "epochs", "parameters", "minutes", "runs"]
    cells = [header + ["machine"] * machine + ["note"] * any(notes)]
    for row, note in zip(result["rows"], notes, strict=True):
        finished = [run for run in row["runs"] if run["status"] == "finished"]
        about = [
            _mean(row["epochs"], 0),
            "" if row["parameters"] is None else f"{row['parameters']:,}",
            _mean(row["seconds"], 1, 1 / 60),
            str(len(finished)),
            *([_machine(finished)] if machine else []),
            *([note] if any(notes) else []),
        ]
        for place, column in enumerate(_columns(result, row)):
            paper = row["paper"].get(column)
            ours = number(row["measured"].get(column), 2)
            first = [row["label"]] if place == 0 else [""]
            told = about if place == 0 else [""] * len(about)
            cells.append([*first, column, "" if paper is None else f"{paper:g}", ours, *told])
    return cells


def markdown(entry: Reproduction, result: Result | None, pictures: str = "images") -> str:
    """A section of the page: what the paper has, what differs, and what was measured so far, with its pictures.

    A network whose recipe has become another one since is marked; pictures are looked for in a folder as
    `reproduce-NAME-FIGURE.png`.
    """
    shown = not_run(entry) if result is None else _current(entry, result)
    finished = any(run["status"] == "finished" for row in shown["rows"] for run in row["runs"])
    table = lines(shown, machine=True)
    rule = ["---", "---", *["---:"] * 6, *["---"] * (len(table[0]) - 8)]
    rows = [[cell.replace("|", "\\|") for cell in cells] for cells in (table[0], rule, *table[1:])]
    parts = [
        f"## {entry.title}",
        f"{entry.source}. {entry.note}".strip(),
        f"`torchcaps reproduce {entry.name}`" + ("" if finished else ": not run yet."),
        "\n".join(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    for name in shown["pictures"]:
        words = name.replace("_", " ").capitalize()
        parts.append(f"![{words}: {entry.title}]({pictures}/reproduce-{entry.name}-{name}.png)")
    return "\n\n".join(parts) + "\n"


def not_run(entry: Reproduction) -> Result:
    """As much of a result as a table needs, of a reproduction that has none: what the paper has alone."""
    columns = list(MEASURES[entry.measure].columns)
    return {"columns": columns, "rows": [summarise(network, []) for network in entry.networks], "pictures": {}}


def _current(entry: Reproduction, result: Result) -> Result:
    """The rows of the networks as they are now, with the paper's numbers as they are now."""
    there = {row["label"]: row for row in result["rows"]}
    names = {(planned.network.label, planned.folder) for planned in plan(entry)}
    rows = []
    for network in entry.networks:
        row = there.get(network.label, summarise(network, []))
        done = [run["folder"] for run in row["runs"] if run["status"] == "finished"]
        stale = any((network.label, folder) not in names for folder in done)
        rows.append({**row, "paper": network.paper, "stale": stale})
    return {**result, "rows": rows}


def _columns(result: Result, row: Mapping[str, Any]) -> list[str]:
    """The columns that paper or run have, in order; one empty one where there are none."""
    known = {*row["paper"], *row["measured"]}
    return [name for name in result["columns"] if name in known] or [""]


def _mean(value: Spread | None, digits: int, scale: float = 1) -> str:
    return "" if value is None else f"{scale * value['mean']:.{digits}f}"


def _machine(runs: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(dict.fromkeys(map(machine_words, runs)))


def machine_words(run: Mapping[str, Any]) -> str:
    """What a run was computed on, and in which precision where it is not the usual one; old results do not say.

    >>> machine_words({"machine": {"cores": 1, "processor": "EPYC"}, "precision": "bf16-mixed"})
    '1 core, EPYC, bf16-mixed'
    """
    cores, precision = run["machine"]["cores"], run.get("precision", USUAL)
    words = [f"{cores} core{'s' * (cores != 1)}", run["machine"]["processor"]]
    return ", ".join(words if precision == USUAL else [*words, precision])


def _note(row: Mapping[str, Any]) -> str:
    words = [f"seed {run['seed']}: {run[key]}" for run in row["runs"] for key in ("error", "short") if run.get(key)]
    return "; ".join([*words, *(["made with an earlier recipe"] if row.get("stale") else [])])
