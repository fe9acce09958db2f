from __future__ import annotations

import pytest
import torch

from torchcaps.bench import Candidate, measure
from torchcaps.bench.measure import (
    TimingBudget,
    available_memory,
    insufficient_memory,
    measure_memory,
    measure_point,
    peak_memory,
)

POINT = {"batch": 2, "iters": 3}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock: it advances by the seconds that tasks add to the list."""
    passed: list[float] = []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: sum(passed))
    monkeypatch.setattr(measure.time, "process_time", lambda: 0.0)
    return passed


def test_rows_of_all_candidates(toy, clock):
    def slow(point):
        seconds = iter([9.0, 9.0, 0.5, 4.0, 0.25, 3.0, 1.0, 2.0])  # warm-up, then three rounds
        return {task: lambda: clock.append(next(seconds)) for task in ("forward", "both")}

    case = toy()
    slow_candidate = Candidate("slow", slow, flops=lambda point: 8e6 * point["batch"])
    case = toy(candidates=(case.candidates[0], slow_candidate, *case.candidates[2:]))
    rows = {row["candidate"]: row for row in measure_point(case, POINT, TimingBudget(3, 60))}
    assert list(rows) == ["ours", "slow", "broken", "too large"]
    assert rows["slow"]["times"] == {
        "forward": {"min": 0.25, "median": 0.5, "rounds": 3},
        "both": {"min": 2.0, "median": 3.0, "rounds": 3},
    }
    # The processor had nothing to do.
    assert rows["slow"]["processor"]["both"] == {"min": 0.0, "median": 0.0, "rounds": 3}
    assert rows["slow"]["gflops"] == pytest.approx(16e6 / 2.0 / 1e9)
    assert rows["ours"]["times"]["both"] == {"min": 0.0, "median": 0.0, "rounds": 3}
    assert rows["broken"]["error"] == "RuntimeError: no compiler"
    assert "times" not in rows["broken"]
    assert rows["too large"]["error"].startswith("MemoryError: needs about 1000000000 GB, ")


def test_candidates_take_turns(toy):
    calls = []

    def candidate(name):
        return Candidate(name, lambda point: {"task": lambda: calls.append(name)})

    measure_point(toy(candidates=(candidate("a"), candidate("b"))), POINT, TimingBudget(3, 60))
    # One call each to warm up, then three rounds.
    assert calls == ["a", "b"] * 4


def test_late_failure_keeps_earlier_rounds(toy):
    def late(point):
        calls = iter(range(3))
        return {"forward": lambda: next(calls), "both": lambda: None}

    (row,) = measure_point(toy(candidates=(Candidate("late", late),)), POINT, TimingBudget(5, 60))
    assert row["error"].startswith("StopIteration")
    assert row["times"]["forward"]["rounds"] == 2


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 3), (1000.0, 4), (10000.0, 7)])
def test_time_limit(toy, clock, seconds, rounds):
    def slow(point):
        return {"task": lambda: clock.append(250.0)}

    (row,) = measure_point(toy(candidates=(Candidate("slow", slow),)), POINT, TimingBudget(7, seconds - 1))
    assert row["times"]["task"]["rounds"] == rounds


def test_peak_memory_is_rise_of_rss(monkeypatch):
    resident = iter([100_000_000, 103_000_000, 101_000_000, 101_500_000])
    events: list[object] = []
    monkeypatch.setattr(measure, "resident_memory", lambda **options: events.append(options) or next(resident))

    def prepare(point):
        return {name: lambda name=name: events.append((name, point["batch"])) for name in ("one", "two")}

    assert peak_memory(Candidate("toy", prepare), {"batch": 40}) == {"one": 3.0, "two": 0.5}
    warm_up = [("one", 1), ("two", 1)]
    around = [[{"reset": True}, (name, 40), {"peak": True}] for name in ("one", "two")]
    assert events == [*warm_up, *around[0], *around[1]]


def test_resident_memory_of_this_process():
    tensor = torch.ones(1_000_000)
    now = measure.resident_memory(reset=True)
    assert tensor.nbytes < now <= measure.resident_memory(peak=True)


def test_memory_is_measured_in_a_new_process():
    point = {"batch": 4, "children": 128, "parents": 10, "iters": 1}
    peaks = measure_memory("dynamic", "broadcast baseline", point)
    assert isinstance(peaks, dict)
    assert list(peaks) == ["forward", "forward+backward"]
    assert all(isinstance(value, float) for value in peaks.values())


def test_failing_process():
    assert measure_memory("dynamic", "broadcast baseline", {"batch": 4}) == "KeyError: 'children'"


def test_insufficient_memory():
    def prepare(point):
        return {}

    assert 0 < available_memory() < float("inf")
    assert insufficient_memory(Candidate("small", prepare), {}) is None
    large = Candidate("large", prepare, memory_needed=lambda point: 1e15)
    assert "needs about 1000000 GB" in str(insufficient_memory(large, {}))
