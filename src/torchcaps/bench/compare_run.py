"""What is measured of each run of a comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

from torchcaps.data import ImageData
from torchcaps.eval import diagnose, evaluate
from torchcaps.train import Run
from torchcaps.train.run import write_atomically


def measure(run: Run, tests: Mapping[str, ImageData], *, memory: bool) -> dict[str, Any]:
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
