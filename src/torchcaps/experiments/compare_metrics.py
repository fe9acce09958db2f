"""The metrics of each run of a comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

from torchcaps._files import write_text
from torchcaps.data import ImageDataset
from torchcaps.diagnostics import diagnose
from torchcaps.errors import CheckpointError
from torchcaps.evaluation import evaluate
from torchcaps.experiments._json import read_cache
from torchcaps.experiments.comparison import RouterMetrics
from torchcaps.train import Run


def measure_run(run: Run, tests: Mapping[str, ImageDataset], *, memory: bool) -> RouterMetrics:
    """Return the metrics of a finished run; slow ones are cached in its folder as `comparison.json`.

    Args:
        run: The run.
        tests: Further data to evaluate on, by name.
        memory: Whether to measure the memory of a training step.

    Returns:
        The metrics.
    """
    from torchcaps.bench.step_memory import step_memory

    file = run.path / "comparison.json"
    cache = _read_cache(file)
    before = json.dumps(cache)
    model = run.load_model()
    if "diagnostics" not in cache:
        cache["diagnostics"] = diagnose(model, run.load_data("test")).to_json()
    if memory and "memory" not in cache:
        cache["memory"] = step_memory(run.path)
    for text, data in tests.items():
        if text not in cache["tests"]:
            cache["tests"][text] = evaluate(model, data).accuracy
    if json.dumps(cache) != before:
        write_text(file, json.dumps(cache, indent=1) + "\n")
    record, ends, used = run.record, run.metrics().get("seconds"), cache.get("memory")
    if not ends:
        raise CheckpointError(f"run: expected the seconds of each epoch, but '{run.path / 'metrics.csv'}' has none")
    f1 = run.context.evaluate().metrics.values.get("f1_macro")
    return RouterMetrics(
        test_accuracy=run.results["test_accuracy"],
        val_accuracy=run.results["best"].get("val_accuracy"),
        epoch_seconds=median(end - start for start, end in zip([0.0, *ends], ends, strict=False)),
        seconds=record["seconds"],
        parameters=record["parameters"],
        memory_mb=used if isinstance(used, float) else None,
        memory_error=used if isinstance(used, str) else None,
        tests={text: cache["tests"][text] for text in tests},
        commit=record["commit"],
        f1_macro=None if f1 is None else f1.value,
        f1_interval=None if f1 is None or f1.interval is None else list(f1.interval),
        **routing_metrics(cache["diagnostics"]),
    )


def _read_cache(file: Path) -> dict[str, Any]:
    """Return earlier measurements; those that are damaged are measured again."""
    cache = {"tests": {}, **read_cache(file)}
    try:
        routing_metrics(cache.get("diagnostics", {"layers": [], "gradient_norms": {}}))
        math.fsum([*cache["tests"].values(), *(number for number in [cache.get("memory")] if type(number) is float)])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return {"tests": {}}
    return cache


def routing_metrics(diagnostics: Mapping[str, Any]) -> dict[str, float | None]:
    """Reduce routing diagnostics to one number each.

    Entropy at the last iteration, mean logit change and changed predictions are those of the class layer; dead parents
    and gradient norm those of all layers.
    """
    layers, norms = diagnostics["layers"], list(diagnostics["gradient_norms"].values())
    gradient = None if None in norms else math.hypot(*norms)
    if not layers:
        return {"gradient_norm": gradient}
    dead = sum(layer["dead"] * layer["parents"] for layer in layers) / sum(layer["parents"] for layer in layers)
    changes = layers[-1]["logit_change"]
    return {
        "entropy": layers[-1]["entropy"][-1],
        # One iteration changes no logits.
        "logit_change": None if not changes or None in changes else fmean(changes),
        "changed": layers[-1]["changed"],
        "dead": dead,
        "gradient_norm": gradient,
    }
