"""Run a reproduction: train what is missing, measure what is there, draw, and write down what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torchcaps.eval.evaluate import Progress
from torchcaps.reproduce.entry import Planned, Reproduction, alters, plan
from torchcaps.reproduce.figures import FIGURES
from torchcaps.reproduce.measures import MEASURES
from torchcaps.reproduce.table import Result, summarise
from torchcaps.train import Run
from torchcaps.train._attempt import attempt, reason
from torchcaps.train.run import write_atomically

Bar = Callable[[str], AbstractContextManager[Progress]]


def _no_bar(what: str) -> AbstractContextManager[Progress]:
    return nullcontext(lambda done, total: None)


def reproduce(
    entry: Reproduction,
    folder: str | Path,
    *,
    train: Sequence[str] | None = None,
    changes: Sequence[str] = (),
    again: bool = False,
    progress: bool = False,
    bar: Bar = _no_bar,
    tell: Callable[[str], None] = lambda text: None,
) -> Result:
    """Train the networks of a reproduction in runs of their own in one folder, measure them and draw its pictures.

    Of the networks only those with a label in `train` are trained, without it all; the others are measured where
    they are finished. `changes` go to all recipes. A run has the name of its recipe: it is shared with other
    reproductions in the same folder, taken as it is where it is finished, and goes on where it was broken off. One
    that fails is told with its reason, and the others go on. What was measured of a run before is kept, unless it is to
    be measured `again`. `reproduction-NAME.json` is written after each run, with the pictures that were there before;
    where Ctrl-C stopped one, the status of the result is "stopped".
    """
    folder = Path(folder)
    runs = plan(entry, changes)
    before = _pictures(entry, folder)
    found: dict[str, list[dict[str, Any]]] = {network.label: [] for network in entry.networks}
    measure = partial(_measure, entry.measure, bar=bar, again=again)
    for number, planned in enumerate(runs, start=1):
        label, path = planned.network.label, folder / planned.folder
        tell(f"{number}/{len(runs)}  {label}, seed {planned.recipe.seed}")
        if _finished(path) or train is None or label in train:
            row = attempt(planned.recipe, path, measure, progress=progress)
        else:
            row = {"status": "not run"}
        found[label].append({"seed": planned.recipe.seed, "folder": planned.folder, **row})
        _write(_result(entry, runs, found, changes) | before, folder)
        if row["status"] == "stopped":
            break
    result = _result(entry, runs, found, changes) | before
    if result["status"] != "stopped":
        result |= _draw(entry, found, folder, tell)
        _write(result, folder)
    return result


def result_file(name: str, folder: str | Path) -> Path:
    """Where the result of a reproduction is written."""
    return Path(folder) / f"reproduction-{name}.json"


def _finished(path: Path) -> bool:
    return (path / "run.json").exists() and Run.open(path).status == "finished"


def _pictures(entry: Reproduction, folder: Path) -> dict[str, Any]:
    """The pictures that were drawn before, as in a result."""
    file = result_file(entry.name, folder)
    before: Result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {"pictures": {name: path for name, path in before.get("pictures", {}).items() if (folder / path).exists()}}


def _measure(name: str, run: Run, bar: Bar, again: bool) -> dict[str, Any]:
    """What is told of a finished run; the numbers that take time are kept in its folder as `measure-NAME.json`."""
    file = run.path / f"measure-{name}.json"
    if file.exists() and not again:
        measured: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    else:
        with bar("measuring") as progress:
            measured = MEASURES[name].ask(run, progress)
        write_atomically(file, json.dumps(measured, indent=1) + "\n")
    record = run.record
    kept = ("parameters", "seconds", "machine", "versions", "commit", "finished")
    trainer = run.recipe.trainer
    told = {"measured": measured, "epochs": len(run.metrics()["epoch"]), **{name: record[name] for name in kept}}
    told["precision"] = trainer.precision
    wanted, best = trainer.stop_at, run.results["best"].get("val_accuracy", 0.0)
    if wanted is not None and best < wanted:
        told["short"] = f"to be stopped at {wanted:.2%} in validation, but came to {best:.2%}"
    return told


def _result(
    entry: Reproduction, runs: Sequence[Planned], found: Mapping[str, list[dict[str, Any]]], changes: Sequence[str]
) -> Result:
    recipes = {planned.network.label: planned.recipe for planned in reversed(runs)}
    statuses = [run["status"] for rows in found.values() for run in rows]
    complete = len(statuses) == len(runs) and set(statuses) == {"finished"}
    return {
        "reproduction": entry.name,
        "title": entry.title,
        "source": entry.source,
        "note": entry.note,
        "measure": entry.measure,
        "columns": list(MEASURES[entry.measure].columns),
        "changes": [change for change in changes if alters(change)],
        "status": "stopped" if "stopped" in statuses else "finished" if complete else "partial",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": [
            {**summarise(network, found[network.label]), "recipe": asdict(recipes[network.label])}
            for network in entry.networks
        ],
        "pictures": {},
        "not drawn": {},
    }


def _write(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(result_file(result["reproduction"], folder), json.dumps(result, indent=1) + "\n")


def _draw(
    entry: Reproduction, found: Mapping[str, list[dict[str, Any]]], folder: Path, tell: Callable[[str], None]
) -> dict[str, dict[str, str]]:
    """The pictures that can be drawn, as files relative to the folder, and why the others can not."""
    done = {label: [run for run in runs if run["status"] == "finished"] for label, runs in found.items()}
    runs = {label: Run.open(folder / finished[0]["folder"]) for label, finished in done.items() if finished}
    pictures: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in entry.figures if runs else ():
        tell(f"drawing {name}")
        file = Path("pictures") / f"{entry.name}-{name}.png"
        try:
            figure = FIGURES[name](runs)
            (folder / file).parent.mkdir(exist_ok=True)
            figure.savefig(folder / file)
            pictures[name] = file.as_posix()
        # Whatever keeps a picture from being drawn is told, and the numbers stay.
        except Exception as error:
            failed[name] = reason(error)
    return {"pictures": pictures, "not drawn": failed}
