"""Time and memory: candidates take turns in one process; peak memory is measured in a process per candidate."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchcaps.bench._case import Candidate, Case, Point, Tasks

Row = dict[str, Any]
# glibc returns freed blocks of this size at once. Otherwise it keeps those below 32 MB, and where the holes do not fit
# the next block, the peak has up to 15 MB that are not in use, another number in each run.
RETURN_BLOCKS = {"MALLOC_MMAP_THRESHOLD_": "65536"}


class TimingBudget(NamedTuple):
    """How long to measure at a point.

    Attributes:
        rounds: Largest number of rounds.
        seconds: Time after which no further round starts, once there are three.
    """

    rounds: int
    seconds: float


class Times(NamedTuple):
    """Seconds that a call took.

    Attributes:
        wall: Seconds that passed.
        processor: Seconds of the processor, the sum over all threads.
    """

    wall: float
    processor: float


def measure_point(case: Case, point: Point, budget: TimingBudget) -> list[Row]:
    """Time every task of every candidate; in a round each task runs once.

    Args:
        case: The benchmark.
        point: The sizes.
        budget: How long to measure.

    Returns:
        One row per candidate: minimum and median of every task, also of the processor's time, rates, errors.
    """
    names = [candidate.name for candidate in case.candidates]
    rows: dict[str, Row] = {name: {"point": dict(point), "candidate": name} for name in names}
    ready: dict[str, Tasks] = {}
    for candidate in case.candidates:
        tasks = _try(rows[candidate.name], lambda candidate=candidate: _warm(candidate, point))
        if tasks is not None:
            ready[candidate.name] = tasks
    times: dict[str, dict[str, list[Times]]] = {name: {task: [] for task in tasks} for name, tasks in ready.items()}
    end = time.perf_counter() + budget.seconds
    for number in range(budget.rounds):
        for name, tasks in ready.items():
            for task, call in tasks.items():
                if "error" not in rows[name]:
                    took = _try(rows[name], lambda call=call: _time(call))
                    times[name][task] += [] if took is None else [took]
        if time.perf_counter() > end and number >= 2:
            break
    for name in ready:
        taken = {task: all_times for task, all_times in times[name].items() if all_times}
        rows[name]["times"] = {task: _summary([each.wall for each in all_times]) for task, all_times in taken.items()}
        # Of all threads; what else runs on the machine changes it less.
        rows[name]["processor"] = {
            task: _summary([each.processor for each in all_times]) for task, all_times in taken.items()
        }
        flops = case.candidate(name).flops
        if flops is not None and rows[name]["times"]:
            last = list(rows[name]["times"].values())[-1]
            rows[name]["gflops"] = flops(point) / last["min"] / 1e9
    return list(rows.values())


def measure_memory(name: str, candidate: str, point: Point) -> dict[str, float] | str:
    """Return the peak memory of each task in MB, without inputs and parameters, or the reason of a failure.

    Args:
        name: Name of the benchmark.
        candidate: Name of the candidate.
        point: Sizes of the measurement.

    Returns:
        Megabytes by task, or the reason.
    """
    return in_own_process(
        "torchcaps.bench.measure", name, candidate, json.dumps(dict(point)), environment=RETURN_BLOCKS
    )


def in_own_process(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any] | str:
    """Run a module in a new process; return the JSON of its last line, or the reason of a failure."""
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"killed by signal {-done.returncode}" if done.returncode < 0 else lines[-1]
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory(candidate: Candidate, point: Point) -> dict[str, float]:
    """Run every task once; return how far the resident memory rises, in MB."""
    # The first call loads or compiles code, which is not measured. A batch of one leaves no large block behind.
    first = candidate.prepare(point if candidate.compiled else {**point, "batch": 1})
    for call in first.values():
        call()
    del first
    tasks = candidate.prepare(point)
    peaks: dict[str, float] = {}
    for task, call in tasks.items():
        if candidate.compiled:
            call()
        gc.collect()
        trim_memory()
        before = resident_memory(reset=True)
        call()
        peaks[task] = (resident_memory(peak=True) - before) / 1e6
    return peaks


def available_memory() -> float:
    """Return the bytes that are available without swapping; infinity if the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("inf")
    return next((int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable")), float("inf"))


def insufficient_memory(candidate: Candidate, point: Point) -> str | None:
    """Return the reason if a candidate needs more memory than is available, else None."""
    needed, available = candidate.memory_needed(point), available_memory()
    return None if needed <= available else f"needs about {needed / 1e9:.0f} GB, {available / 1e9:.0f} GB are available"


def _warm(candidate: Candidate, point: Point) -> Tasks:
    reason = insufficient_memory(candidate, point)
    if reason is not None:
        raise MemoryError(reason)
    tasks = candidate.prepare(point)
    for call in tasks.values():
        call()
    return tasks


def _try(row: Row, call: Callable[[], Any]) -> Any:
    # Any error of a candidate is a result to report.
    try:
        return call()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        row["error"] = f"{type(error).__name__}: {lines[0]}"
        return None


def _time(call: Callable[[], object]) -> Times:
    start, processor = time.perf_counter(), time.process_time()
    call()
    return Times(time.perf_counter() - start, time.process_time() - processor)


def _summary(times: list[float]) -> dict[str, float]:
    return {"min": min(times), "median": statistics.median(times), "rounds": len(times)}


def resident_memory(*, peak: bool = False, reset: bool = False) -> int:
    """Return the resident memory in bytes, or its peak since the last reset (outside Linux since the start)."""
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    key = "VmHWM:" if peak else "VmRSS:"
    lines = status.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def trim_memory() -> None:
    """Return freed memory to the system, so that it does not count as used (glibc only)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


if __name__ == "__main__":
    _, case_name, candidate_name, point_json = sys.argv
    from torchcaps import bench

    print(json.dumps(peak_memory(bench.CASES[case_name].candidate(candidate_name), json.loads(point_json))))
