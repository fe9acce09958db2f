"""Run benchmarks: check kernels, measure time and memory, write results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchcaps._files import write_text
from torchcaps.bench._case import CASES
from torchcaps.bench.measure import TimingBudget, measure_memory, measure_point
from torchcaps.errors import TorchcapsError
from torchcaps.ops import list_kernels
from torchcaps.train.environment import commit, machine, now, versions

Result = dict[str, Any]
FULL = TimingBudget(rounds=15, seconds=60)
QUICK = TimingBudget(rounds=3, seconds=10)


class KernelMismatchError(TorchcapsError):
    """A kernel whose results differ from the reference."""


def run_case(
    name: str,
    *,
    quick: bool = False,
    first: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Run one benchmark.

    Args:
        name: Name in `CASES`.
        quick: Whether to measure few sizes and rounds.
        first: Whether to measure the first point only, that of the summary.
        progress: Called with the numbers of done and of all steps.

    Returns:
        The result, with machine, its load before and after each point, versions and commit.

    Raises:
        KernelMismatchError: If a kernel differs from the reference.

    Example:
        >>> run_case("dynamic", quick=True)  # doctest: +SKIP
    """
    case = CASES[name]
    points = case.quick if quick else case.points[:1] if first else case.points
    budget = QUICK if quick else FULL
    try:
        case.check()
    except AssertionError as error:
        raise KernelMismatchError(
            f"{name}: expected a kernel that matches the reference, got different results\n{error}"
        ) from None
    rows: list[Result] = []
    load = [_load()]
    for done, point in enumerate(points):
        progress(2 * done, 2 * len(points))
        measured = measure_point(case, point, budget)
        progress(2 * done + 1, 2 * len(points))
        for row in measured if case.memory else []:
            if "error" not in row:
                row["memory"] = measure_memory(name, row["candidate"], point)
        rows += measured
        load.append(_load())
    progress(2 * len(points), 2 * len(points))
    return {
        "benchmark": name,
        "title": case.title,
        "quick": quick,
        "date": now(),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "load": load,
        "kernels": [kernel._asdict() for kernel in list_kernels()],
        "rows": rows,
    }


def _load() -> float | None:
    """Return how many processes were ready to run in the last minute, this one included, where the system says."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def write_result(result: Result, folder: Path) -> Path:
    """Write `<benchmark>.json` into a folder.

    Args:
        result: The result.
        folder: The folder, which is created if it is missing.

    Returns:
        The path of the file.

    Example:
        >>> write_result(run_case("dynamic", quick=True), Path("benchmarks/results"))  # doctest: +SKIP
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.json"
    write_text(path, json.dumps(result, indent=1) + "\n")
    return path
