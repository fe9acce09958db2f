"""What is measured of each run of a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from statistics import fmean, median
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
        "val_accuracy": run.results["best"].get("val_accuracy"),
        "epoch_seconds": median(end - start for start, end in zip([0.0, *ends], ends, strict=False)),
        "seconds": record["seconds"],
        "parameters": record["parameters"],
        "memory_mb": kept.get("memory_mb"),
        **_routing(kept["diagnostics"]),
        "tests": {text: kept["tests"][text] for text in tests},
        "commit": record["commit"],
    }


def _routing(found: dict[str, Any]) -> dict[str, float | None]:
    """Of the layer of the classes the last entropy, the mean change of the logits from an iteration to the next and the
    changed predictions; of all layers the dead parents and the length of the gradient.
    """
    layers, norms = found["layers"], list(found["gradient_norms"].values())
    gradient = None if None in norms else math.hypot(*norms)
    if not layers:
        return {"entropy": None, "logit_change": None, "changed": None, "dead": None, "gradient_norm": gradient}
    dead = sum(layer["dead"] * layer["parents"] for layer in layers) / sum(layer["parents"] for layer in layers)
    changes = layers[-1]["logit_change"]
    return {
        "entropy": layers[-1]["entropy"][-1],
        # With one pass nothing changes.
        "logit_change": None if not changes or None in changes else fmean(changes),
        "changed": layers[-1]["changed"],
        "dead": dead,
        "gradient_norm": gradient,
    }
