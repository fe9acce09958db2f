"""Benchmarks of layers and training steps, beside the usual implementations, on this machine."""

from torchcaps.bench import capsnet, dynamic, em, grids, loading, routers
from torchcaps.bench._case import CASES, Candidate, Case, one_axis_sweep
from torchcaps.bench.render import read_result, render, summary
from torchcaps.bench.run import run_case, write_result

__all__ = [
    "CASES",
    "Candidate",
    "Case",
    "capsnet",
    "dynamic",
    "em",
    "grids",
    "loading",
    "one_axis_sweep",
    "read_result",
    "render",
    "routers",
    "run_case",
    "summary",
    "write_result",
]
