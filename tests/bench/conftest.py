from __future__ import annotations

from collections.abc import Callable

import pytest

from torchcaps.bench import CASES, Candidate, Case, one_axis_sweep


def fast_task(point):
    return {"forward": lambda: None, "both": lambda: None}


def broken_task(point):
    raise RuntimeError("no compiler\nand a long story")


@pytest.fixture
def toy(monkeypatch) -> Callable[..., Case]:
    """Register a benchmark without work as `toy`."""
    monkeypatch.setattr(CASES, "_items", dict(CASES._items))

    def enter(**changes) -> Case:
        points = one_axis_sweep({"batch": 2, "iters": 3}, batch=(1,), iters=(1,))
        settings = {
            "title": "A toy",
            "candidates": (
                Candidate("ours", fast_task),
                Candidate("slow", fast_task, flops=lambda point: 8e6 * point["batch"]),
                Candidate("broken", broken_task),
                Candidate("too large", fast_task, memory_needed=lambda point: 1e18),
            ),
            "points": (*points, {"batch": 3, "iters": 4}),
            "quick": points[:1],
            "check": lambda: None,
            "memory": False,
        }
        case = Case(**(settings | changes))
        CASES._items["toy"] = case
        return case

    return enter
