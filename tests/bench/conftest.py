from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from torchcaps.bench import CASES, Case, Contender, around


def slow_task(point):
    return {"forward": lambda: time.sleep(0.002), "both": lambda: time.sleep(0.004 * point["batch"])}


def fast_task(point):
    return {"forward": lambda: None, "both": lambda: None}


def broken_task(point):
    raise RuntimeError("no compiler\nand a long story")


@pytest.fixture
def toy(monkeypatch) -> Callable[..., Case]:
    """A benchmark without work, entered as `toy` until the test is over."""
    monkeypatch.setattr(CASES, "_items", dict(CASES._items))

    def enter(**changes) -> Case:
        points = around({"batch": 2, "iters": 3}, batch=(1,), iters=(1,))
        settings = {
            "title": "A toy",
            "contenders": (
                Contender("ours", fast_task),
                Contender("slow", slow_task, flops=lambda point: 8e6 * point["batch"]),
                Contender("broken", broken_task),
                Contender("too large", fast_task, needs=lambda point: 1e18),
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
