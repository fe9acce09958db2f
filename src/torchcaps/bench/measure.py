"""Time and memory: contenders take turns in one process; peak memory is taken in a process of its own per contender."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchcaps.bench._case import Case, Contender, Point, Tasks

Row = dict[str, Any]


class Plan(NamedTuple):
    """How long to measure at a point: so many rounds, or until the seconds are over, but at least three rounds."""

    rounds: int
    seconds: float


def measure_point(case: Case, point: Point, plan: Plan) -> list[Row]:
    """One row per contender: the minimum and median of every task, rates, and errors of those that failed.

    In a round every contender does each of its tasks once.
    """
    names = [contender.name for contender in case.contenders]
    rows: dict[str, Row] = {name: {"point": dict(point), "contender": name} for name in names}
    ready: dict[str, Tasks] = {}
    for contender in case.contenders:
        tasks = _attempt(rows[contender.name], lambda contender=contender: _warm(contender, point))
        if tasks is not None:
            ready[contender.name] = tasks
    times: dict[str, dict[str, list[float]]] = {name: {task: [] for task in tasks} for name, tasks in ready.items()}
    end = time.perf_counter() + plan.seconds
    for number in range(plan.rounds):
        for name, tasks in ready.items():
            for task, call in tasks.items():
                if "error" not in rows[name]:
                    took = _attempt(rows[name], lambda call=call: _time(call))
                    times[name][task] += [] if took is None else [took]
        if time.perf_counter() > end and number >= 2:
            break
    for name in ready:
        rows[name]["times"] = {task: _summary(all_times) for task, all_times in times[name].items() if all_times}
        flops = case.contender(name).flops
        if flops is not None and rows[name]["times"]:
            last = list(rows[name]["times"].values())[-1]
            rows[name]["gflops"] = flops(point) / last["min"] / 1e9
    return list(rows.values())


def measure_memory(name: str, contender: str, point: Point) -> dict[str, float] | str:
    """Peak memory of each task in MB beyond what inputs and parameters take, or what went wrong."""
    return in_own_process("torchcaps.bench.measure", name, contender, json.dumps(dict(point)))


def in_own_process(module: str, *words: str) -> dict[str, float] | str:
    """Run a module as a program with these words: the JSON that it prints last, or what went wrong."""
    command = [sys.executable, "-m", module, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"killed by signal {-done.returncode}" if done.returncode < 0 else lines[-1]
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory(contender: Contender, point: Point) -> dict[str, float]:
    """Run every task once in this process and read how far the resident memory rose above where it stood."""
    # What is loaded or built at a first call is no part of the work; a batch of one leaves no large block behind.
    first = contender.prepare(point if contender.compiled else {**point, "batch": 1})
    for call in first.values():
        call()
    del first
    tasks = contender.prepare(point)
    peaks: dict[str, float] = {}
    for task, call in tasks.items():
        if contender.compiled:
            call()
        gc.collect()
        _trim()
        before = _resident(reset=True)
        call()
        peaks[task] = (_resident(peak=True) - before) / 1e6
    return peaks


def available_memory() -> float:
    """Bytes that can be taken without swapping; unlimited where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("inf")
    return next((int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable")), float("inf"))


def why_not(contender: Contender, point: Point) -> str | None:
    """Why a contender cannot run at a point: it would need more memory than there is."""
    need, there = contender.needs(point), available_memory()
    return None if need <= there else f"needs about {need / 1e9:.0f} GB, {there / 1e9:.0f} GB are free"


def _warm(contender: Contender, point: Point) -> Tasks:
    reason = why_not(contender, point)
    if reason is not None:
        raise MemoryError(reason)
    tasks = contender.prepare(point)
    for call in tasks.values():
        call()
    return tasks


def _attempt(row: Row, call: Callable[[], Any]) -> Any:
    # A contender that fails, for whatever reason, is a result to report: the others go on.
    try:
        return call()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        row["error"] = f"{type(error).__name__}: {lines[0]}"
        return None


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _summary(times: list[float]) -> dict[str, float]:
    return {"min": min(times), "median": statistics.median(times), "rounds": len(times)}


def _resident(*, peak: bool = False, reset: bool = False) -> int:
    """Bytes of resident memory now, or at their peak since the last reset (Linux; elsewhere since the start)."""
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    wanted = "VmHWM:" if peak else "VmRSS:"
    lines = status.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))


def _trim() -> None:
    """Give freed memory back to the system, so that it is not mistaken for memory in use (glibc only)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


if __name__ == "__main__":
    _, wanted_case, wanted_contender, wanted_point = sys.argv
    from torchcaps import bench

    print(json.dumps(peak_memory(bench.CASES[wanted_case].contender(wanted_contender), json.loads(wanted_point))))
