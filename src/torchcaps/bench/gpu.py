"""`torchcaps bench --device cuda`: the Triton kernels beside other backends and beside what a GPU allows at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.roofline import CASES, GPUS, LAYERS, Estimate, estimate, make_step
from torchcaps.bench.routers import check_kernel
from torchcaps.bench.run import KernelMismatchError, Result
from torchcaps.errors import ConfigError
from torchcaps.train.environment import commit, machine, now, versions

NAME = "triton"
CAPABILITIES = (80, 90, 100)
BACKENDS = ("triton", "recompute", "reference")


def check_device(device: str) -> None:
    """Raise ConfigError unless the device is there, with the remedy.

    Args:
        device: `cuda`.

    Raises:
        ConfigError: If there is no such device here.

    Example:
        >>> check_device("cpu")
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"--device: expected a device of this machine, got '{device}' (torch finds no CUDA device; run this on a "
            "machine with a GPU, a torch built for CUDA and the extra `triton`)"
        )


def run_gpu(
    routings: Sequence[str] = (),
    *,
    device: str = "cuda",
    quick: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Compare the kernels with the reference on a device, then measure training steps beside the estimates.

    Args:
        routings: Names of routings; by default all that have a Triton kernel.
        device: Device of all tensors.
        quick: Few rounds and a batch of 8.
        progress: Called with the numbers of done and of all steps.

    Returns:
        The result, with machine, versions and commit.

    Raises:
        ConfigError: If the device is not there, or a routing has no Triton kernel.
        KernelMismatchError: If a kernel differs from the reference.

    Example:
        >>> run_gpu(["em"])  # doctest: +SKIP
    """
    known = sorted({routing for routing, _ in CASES})
    for name in routings:
        if name not in known:
            raise ConfigError(f"NAME: expected routings with a Triton kernel ({', '.join(known)}), got '{name}'")
    check_device(device)
    cases = [case for case in CASES if not routings or case[0] in routings]
    rows: list[dict[str, Any]] = []
    for done, (routing, layer) in enumerate(cases):
        progress(done, len(cases))
        if (routing, layer) == next(case for case in cases if case[0] == routing):
            _check(routing, device)
        batch = 8 if quick else LAYERS[layer][1]
        row = describe(estimate(routing, layer, batch))
        row["measured"] = {
            backend: measure(
                make_step(routing, layer, batch, backend=backend, device=device), device, 3 if quick else 20
            )
            for backend in BACKENDS
        }
        rows.append(row)
    progress(len(cases), len(cases))
    return make_result(rows)


def make_result(rows: list[dict[str, Any]]) -> Result:
    """Return rows as a result, with machine, versions and commit."""
    return {
        "benchmark": NAME,
        "title": "Triton kernels: training steps of one layer, and the bound that a GPU sets",
        "date": now(),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "gpus": [gpu._asdict() for gpu in GPUS],
        "rows": rows,
    }


def describe(step: Estimate) -> dict[str, Any]:
    """Return an estimate as a row of a result, with the bound of every GPU in milliseconds."""
    bounds = {gpu.name: {"ms": step.bound(gpu)[0] * 1e3, "set_by": step.bound(gpu)[1]} for gpu in GPUS}
    return {**step._asdict(), "title": LAYERS[step.layer][0], "bounds": bounds}


def measure(step: Callable[[], None], device: str, rounds: int) -> dict[str, float] | str:
    """Time a training step, and measure its peak memory.

    Args:
        step: The step.
        device: Device that it runs on.
        rounds: Number of rounds after two that are not counted.

    Returns:
        Median and minimum in milliseconds, and the peak in MB where the device reports it, or the reason of a failure.
    """
    cuda = torch.device(device).type == "cuda"
    times: list[float] = []
    before = 0
    try:
        for number in range(rounds + 2):
            if number == 2 and cuda:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            step()
            if cuda:
                # A launch returns before its kernel ends.
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    except (RuntimeError, ConfigError) as error:
        # Out of memory is a result: the reference stores all votes.
        return str(error).splitlines()[0]
    found = {"median_ms": statistics.median(times[2:]) * 1e3, "min_ms": min(times[2:]) * 1e3}
    return {**found, "peak_mb": (torch.cuda.max_memory_allocated() - before) / 1e6} if cuda else found


def table(result: Result) -> list[list[str]]:
    """Return the header and the lines of a result, for the command line and the docs."""
    names = [gpu["name"] for gpu in result["gpus"]]
    header = ["routing", "layer, batch", "kernels", "GFLOP", "MB", *(f"{name} at least" for name in names)]
    measured = result["machine"]["accelerator"]
    lines = []
    for row in result["rows"]:
        bounds = [f"{bound['ms']:.3f} ms ({bound['set_by']})" for bound in row["bounds"].values()]
        sizes = [str(row["launches"]), f"{row['flops'] / 1e9:.1f}", f"{row['bytes'] / 1e6:.0f}"]
        lines.append([row["routing"], f"{row['title']}, {row['batch']}", *sizes, *bounds, _measured(row)])
    return [[*header, f"measured, {measured}" if measured else "measured"], *lines]


def _measured(row: dict[str, Any]) -> str:
    found = row.get("measured", {}).get("triton")
    if found is None:
        return "not yet"
    return found if isinstance(found, str) else f"{found['median_ms']:.3f} ms"


def _check(routing: str, device: str) -> None:
    """Raise KernelMismatchError unless the kernel that the device selects agrees with the reference."""
    try:
        with torch.device(device):
            check_kernel(routing)
    except AssertionError as error:
        raise KernelMismatchError(
            f"{routing}: expected a kernel that matches the reference, got different results\n{error}"
        ) from None


def record_estimates(folder: Path) -> Path:
    """Write estimates and what the compiled kernels take, without a GPU: `python -m torchcaps.bench.gpu`."""
    from torchcaps.bench.run import write_result
    from torchcaps.ops._triton.compiled import compile_call, distinct, record

    rows = []
    for routing, layer in CASES:
        row = describe(estimate(routing, layer))
        calls = distinct(record(make_step(routing, layer, 32)))
        row["compiled"] = [compile_call(call, target)._asdict() for target in CAPABILITIES for call in calls]
        rows.append(row)
        print(routing, layer, flush=True)
    return write_result(make_result(rows), folder)


if __name__ == "__main__":
    print(record_estimates(Path("benchmarks") / "results"))
