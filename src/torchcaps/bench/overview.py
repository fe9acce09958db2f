"""All routers beside each other, dense and convolutional, at the sizes of the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchcaps.bench._layer import IN_DIM, OUT_DIM
from torchcaps.bench.run import Result
from torchcaps.nn import ROUTERS

BACKENDS = ("reference", "recompute", "fused")
# Benchmarks in a dense layer whose name is not that of the router.
DENSE = {"em": "em_dense", "dynamic": "dynamic_dense"}
TASK = "forward+backward"


def router_cases() -> dict[tuple[str, str], str]:
    """Return the benchmark of each router in a dense and in a convolutional layer.

    Returns:
        Names of benchmarks. Heinsen's routing is measured on sequences, and has none in the dense layer of the others.

    Example:
        >>> router_cases()["em", "dense"], router_cases()["em", "conv"]
        ('em_dense', 'conv_em')
    """
    cases: dict[tuple[str, str], str] = {}
    for name in sorted(ROUTERS):
        if name != "heinsen":
            cases[name, "dense"] = DENSE.get(name, name)
        cases[name, "conv"] = f"conv_{name}"
    return cases


def gradient_bytes(point: Mapping[str, int]) -> int:
    """Return the size of the gradients of poses, activations and weight: what every backend has to store.

    Args:
        point: Sizes of a measurement.

    Returns:
        Bytes in float32.

    Example:
        >>> gradient_bytes({"batch": 1, "children": 1, "parents": 1})
        544
    """
    if "children" in point:
        children, matrices = point["batch"] * point["children"] * IN_DIM, point["children"] * point["parents"]
        return 4 * (children + matrices * IN_DIM * OUT_DIM)
    children = point["batch"] * point["grid"] ** 2 * point["types"] * 17
    return 4 * (children + 9 * point["types"] * point["parents"] * 16)


def router_lines(results: Mapping[str, Result]) -> list[list[str]]:
    """Return time and extra memory of a training step of every layer, backend by backend.

    Args:
        results: Results by name of the benchmark.

    Returns:
        Lines of cells, the header first. What was not measured is empty.

    Example:
        >>> router_lines({})[1][:2]
        ['`attention`', 'dense']
    """
    header = ["routing", "layer", *(f"{name}, ms" for name in BACKENDS), *(f"{name}, MB" for name in BACKENDS)]
    lines = [[*header, "gradients, MB", "date"]]
    for (router, layer), name in router_cases().items():
        result = results.get(name)
        cells = [""] * (2 * len(BACKENDS) + 2) if result is None else _cells(result)
        lines.append([f"`{router}`", layer, *cells])
    return lines


def _cells(result: Result) -> list[str]:
    point = result["rows"][0]["point"]
    rows = {row["candidate"]: row for row in result["rows"] if row["point"] == point}
    # The time of the processor is the sum over all threads.
    kind = "processor" if result["machine"]["threads"] == 1 else "times"
    times = [rows.get(name, {}).get(kind, {}).get(TASK, {}).get("min") for name in BACKENDS]
    memory = [_memory(rows.get(name, {})) for name in BACKENDS]
    cells = [*(_cell(time, times[0], 1e3) for time in times), *(_cell(peak, memory[0], 1) for peak in memory)]
    return [*cells, f"{gradient_bytes(point) / 1e6:.1f}", result["date"][:10]]


def _memory(row: Mapping[str, Any]) -> float | None:
    memory = row.get("memory")
    return memory[TASK] if isinstance(memory, dict) else None


def _cell(value: float | None, reference: float | None, unit: float) -> str:
    """Return a number and, behind it, its share of that of the reference."""
    if value is None:
        return ""
    share = "" if reference is None or value == reference else f" ({value / reference:.2f})"
    return f"{value * unit:.1f}{share}"
