"""What a comparison of routers came to: means and deviations, as lines of cells and in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Result = dict[str, Any]
Spread = dict[str, Any]

# What is told of every run, besides the tests on other data.
MEASURES = ("test_accuracy", "val_accuracy", "epoch_seconds", "seconds", "entropy", "changed", "dead")
# What is told besides, of runs that have it, as comparisons that were recorded before have not: column and digits.
FURTHER = {"logit_change": ("logit change", 3), "gradient_norm": ("gradient", 4)}


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and deviation of the values that are there; no deviation of a single one, and nothing of none.

    >>> spread([0.5, 1.0, None])
    {'mean': 0.75, 'deviation': 0.3535533905932738, 'count': 2}
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": statistics.mean(known), "deviation": deviation, "count": len(known)}


def summarise(router: str, options: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One router of a comparison: its runs, and the spread of everything that was measured in those that finished."""
    finished = [run for run in runs if run["status"] == "finished"]
    tests = list(dict.fromkeys(name for run in finished for name in run["tests"]))
    return {
        "router": router,
        "options": dict(options),
        "parameters": next((run["parameters"] for run in finished), None),
        "memory_mb": next((run["memory_mb"] for run in finished if run["memory_mb"] is not None), None),
        **{name: spread(run[name] for run in finished) for name in MEASURES},
        **{name: spread(run.get(name) for run in finished) for name in FURTHER},
        "tests": {name: spread(run["tests"].get(name) for run in finished) for name in tests},
        "runs": list(runs),
    }


def lines(result: Result) -> list[list[str]]:
    """The comparison as lines of cells, the header first; why runs failed stands last, where any did."""
    rows = result["rows"]
    tests = list(result["tests"])
    notes = [_note(row) for row in rows]
    header = ["router", "parameters", "test accuracy", *(f"on {name}" for name in tests), "val accuracy", "runs"]
    further = [name for name in FURTHER if any(row.get(name) for row in rows)]
    header += ["s per epoch", "minutes", "step, MB", "entropy", "changed", "dead"]
    header += [*(FURTHER[name][0] for name in further), *(["note"] if any(notes) else [])]
    cells = [header]
    for row, note in zip(rows, notes, strict=True):
        finished = sum(run["status"] == "finished" for run in row["runs"])
        cells.append(
            [
                row["router"],
                "" if row["parameters"] is None else f"{row['parameters']:,}",
                _percent(row["test_accuracy"], 2),
                *(_percent(row["tests"].get(name), 2) for name in tests),
                _percent(row["val_accuracy"], 2),
                str(finished),
                number(row["epoch_seconds"], 2),
                number(row["seconds"], 1, 1 / 60),
                f"{row['memory_mb']:.0f}" if isinstance(row["memory_mb"], float) else "",
                number(row["entropy"], 3),
                _percent(row["changed"], 1),
                _percent(row["dead"], 1),
                *(number(row.get(name), FURTHER[name][1]) for name in further),
                *([note] if any(notes) else []),
            ]
        )
    return cells


def markdown(result: Result) -> str:
    """The comparison in Markdown: where it was made, and the table."""
    machine, versions, recipe = result["machine"], result["versions"], result["recipe"]
    commit = (result["commit"] or "unknown")[:12]
    seeds = ", ".join(map(str, result["seeds"]))
    head, *rest = (f"| {' | '.join(cells)} |" for cells in lines(result))
    rule = f"|---|{'---:|' * (len(lines(result)[0]) - 1)}"
    words = (
        f"`{recipe['model']['name']}` on `{recipe['data']['name']}`, {recipe['trainer']['epochs']} epochs, "
        f"seeds {seeds}; {machine['processor']}, {machine['threads']} threads, torch {versions['torch']}, torchcaps "
        f"{versions['torchcaps']} (commit {commit}), {result['date'][:10]}."
    )
    return "\n".join([words, "", head, rule, *rest])


def _note(row: Mapping[str, Any]) -> str:
    reasons = {f"seed {run['seed']}: {run['error']}": None for run in row["runs"] if run.get("error")}
    if isinstance(row["memory_mb"], str):
        reasons[f"memory: {row['memory_mb']}"] = None
    # All seeds fail alike where a router does not fit; one reason is enough then.
    alone = {run.get("error") for run in row["runs"]}
    if len(alone) == 1 and len(row["runs"]) > 1 and None not in alone:
        return str(alone.pop())
    return "; ".join(reasons)


def _percent(value: Spread | None, digits: int) -> str:
    return "" if value is None else f"{number(value, digits, 100)} %"


def number(value: Spread | None, digits: int, scale: float = 1) -> str:
    """Mean and deviation in words; nothing of nothing.

    >>> number(spread([0.5, 1.0]), 1, 100)
    '75.0 ± 35.4'
    """
    if value is None:
        return ""
    mean = f"{scale * value['mean']:.{digits}f}"
    return mean if value["deviation"] is None else f"{mean} ± {scale * value['deviation']:.{digits}f}"
