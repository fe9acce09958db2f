"""Run benchmarks: check the twin, take turns, measure memory, write the result with its birthplace."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchcaps.bench._case import CASES
from torchcaps.bench.measure import Plan, measure_memory, measure_point
from torchcaps.errors import TorchcapsError
from torchcaps.ops._dispatch import kernels
from torchcaps.train._record import commit, machine, versions

Result = dict[str, Any]
FULL = Plan(rounds=15, seconds=60)
QUICK = Plan(rounds=3, seconds=10)


class TwinError(TorchcapsError):
    """A fast twin that does not match its reference: its speed means nothing."""


def run_case(
    name: str, *, quick: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> Result:
    """Measure one benchmark; `progress` is told how much is done of how much."""
    case = CASES[name]
    points = case.quick if quick else case.points
    plan = QUICK if quick else FULL
    try:
        case.check()
    except AssertionError as error:
        raise TwinError(f"{name}: expected a twin that matches its reference, got one that does not\n{error}") from None
    rows: list[Result] = []
    for done, point in enumerate(points):
        progress(2 * done, 2 * len(points))
        found = measure_point(case, point, plan)
        progress(2 * done + 1, 2 * len(points))
        for row in found if case.memory else []:
            if "error" not in row:
                row["memory"] = measure_memory(name, row["contender"], point)
        rows += found
    progress(2 * len(points), 2 * len(points))
    return {
        "benchmark": name,
        "title": case.title,
        "quick": quick,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "kernels": [kernel._asdict() for kernel in kernels()],
        "rows": rows,
    }


def write_result(result: Result, folder: Path) -> Path:
    """Write `<benchmark>.json` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path
