"""One run of a comparison: started, resumed or taken as it is, then measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from torchcaps.data import ImageData
from torchcaps.errors import CheckpointError, TorchcapsError
from torchcaps.eval import diagnose, evaluate
from torchcaps.train import Recipe, Run, parse_recipe
from torchcaps.train.run import write_atomically


def attempt(
    recipe: Recipe, path: Path, progress: bool, tests: Mapping[str, ImageData], *, memory: bool
) -> dict[str, Any]:
    """Bring a run to its end and measure it: what it came to, or why it failed, or that it was stopped."""
    from torchcaps.train import resume, start

    known = (path / "run.json").exists()
    if known:
        _check_same(Run.open(path), recipe)
    # Whatever a router cannot do is a result to report: the others go on.
    try:
        run = resume(path, progress=progress) if known else start(recipe, path, progress=progress)
        if run.status != "finished":
            return {"status": run.status}
        return {"status": "finished", **_measure(run, tests, memory=memory)}
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        return {
            "status": "failed",
            "error": reason if isinstance(error, TorchcapsError) else f"{type(error).__name__}: {reason}",
        }


def _check_same(run: Run, recipe: Recipe) -> None:
    from torchcaps.train._start import from_anywhere

    # Read back from its text, as the run's own recipe was.
    wanted, there = (asdict(each) for each in (parse_recipe(from_anywhere(recipe).to_toml()), run.recipe))
    differing = [key for key in wanted if wanted[key] != there[key]]
    if differing:
        raise CheckpointError(
            f"folder: expected runs of this comparison, got '{run.path}' with another recipe ({', '.join(differing)} "
            "differs); choose another folder"
        )


def _measure(run: Run, tests: Mapping[str, ImageData], *, memory: bool) -> dict[str, Any]:
    """The numbers of a finished run; what takes time is kept in its folder as `measured.json`."""
    from torchcaps.bench.step import step_memory

    file = run.path / "measured.json"
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"tests": {}}
    model = run.load_model()
    if "diagnostics" not in kept:
        kept["diagnostics"] = diagnose(model, run.load_data("test")).to_json()
    if memory and "memory_mb" not in kept:
        kept["memory_mb"] = step_memory(run.path)
    for text, data in tests.items():
        if text not in kept["tests"]:
            kept["tests"][text] = evaluate(model, data).accuracy
    write_atomically(file, json.dumps(kept, indent=1) + "\n")
    record, ends = run.record, run.metrics()["seconds"]
    return {
        "test_accuracy": run.results["test_accuracy"],
        "val_accuracy": run.results["best"]["val_accuracy"],
        "epoch_seconds": median(end - start for start, end in zip([0.0, *ends], ends, strict=False)),
        "seconds": record["seconds"],
        "parameters": record["parameters"],
        "memory_mb": kept.get("memory_mb"),
        **_routing(kept["diagnostics"]["layers"]),
        "tests": {text: kept["tests"][text] for text in tests},
        "commit": record["commit"],
    }


def _routing(layers: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of the layer of the classes the last entropy and the changed predictions, of all layers the dead parents."""
    if not layers:
        return {"entropy": None, "changed": None, "dead": None}
    dead = sum(layer["dead"] * layer["parents"] for layer in layers) / sum(layer["parents"] for layer in layers)
    return {"entropy": layers[-1]["entropy"][-1], "changed": layers[-1]["changed"], "dead": dead}
