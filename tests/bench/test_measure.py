from __future__ import annotations

import pytest
import torch

from torchcaps.bench import Contender
from torchcaps.bench.measure import Plan, available_memory, measure_memory, measure_point, peak_memory, why_not

MILLION = 1_000_000


def allocate(point):
    inputs = torch.ones(point["batch"], MILLION)
    return {"nothing": lambda: inputs, "one copy": lambda: inputs + 1, "two": lambda: (inputs + 1, inputs + 2)}


def test_contenders_are_timed_in_turn_and_failures_are_reported(toy):
    rows = {row["contender"]: row for row in measure_point(toy(), {"batch": 2, "iters": 3}, Plan(4, 60))}
    assert list(rows) == ["ours", "slow", "broken", "too large"]
    slow = rows["slow"]["times"]
    assert slow["forward"]["rounds"] == slow["both"]["rounds"] == 4
    assert 0.002 <= slow["forward"]["min"] <= slow["forward"]["median"]
    assert 0.008 <= slow["both"]["min"] <= slow["both"]["median"]
    assert rows["slow"]["gflops"] == pytest.approx(16e6 / slow["both"]["min"] / 1e9)
    assert rows["ours"]["times"]["both"]["min"] < 0.002
    assert rows["broken"]["error"] == "RuntimeError: no compiler"
    assert "times" not in rows["broken"]
    assert rows["too large"]["error"].startswith("MemoryError: needs about 1000000000 GB, ")


def test_a_contender_that_fails_later_keeps_what_it_had(toy):
    def late(point):
        calls = iter(range(3))
        return {"forward": lambda: next(calls), "both": lambda: None}

    case = toy(contenders=(Contender("late", late),))
    (row,) = measure_point(case, {"batch": 2, "iters": 3}, Plan(5, 60))
    assert row["error"].startswith("StopIteration")
    assert row["times"]["forward"]["rounds"] == 2


def test_time_is_limited_but_there_are_three_rounds(toy):
    (_, slow, *_) = measure_point(toy(), {"batch": 2, "iters": 3}, Plan(100, 0))
    assert slow["times"]["both"]["rounds"] == 3


def test_peak_memory_counts_what_a_task_takes_beyond_its_inputs():
    peaks = peak_memory(Contender("toy", allocate), {"batch": 40})
    assert peaks["nothing"] < 20
    assert 150 < peaks["one copy"] < 190
    assert 310 < peaks["two"] < 350


def test_memory_is_measured_in_a_process_of_its_own():
    point = {"batch": 4, "children": 128, "parents": 10, "iters": 1}
    votes = 4 * 4 * 128 * 10 * 16 / 1e6
    peaks = measure_memory("dynamic", "broadcast baseline", point)
    assert isinstance(peaks, dict)
    assert list(peaks) == ["forward", "forward+backward"]
    assert votes < peaks["forward+backward"] < 100 * votes


def test_a_process_that_fails_says_why():
    reason = measure_memory("dynamic", "broadcast baseline", {"batch": 4})
    assert reason == "KeyError: 'children'"


def test_memory_that_is_not_there_is_a_reason_not_to_run():
    assert 0 < available_memory() < float("inf")
    assert why_not(Contender("small", allocate), {}) is None
    assert "needs about 1000 GB" in str(why_not(Contender("large", allocate, needs=lambda point: 1e12), {}))
