"""Benchmarks of layers and training steps, compared with the usual implementations, on this machine."""

from torchcaps.bench import backbone, capsnet, dynamic, em, grids, loading, routers, sequences
from torchcaps.bench._case import CASES, Candidate, Case, one_axis_sweep
from torchcaps.bench.render import read_result, render, summary
from torchcaps.bench.run import run_case, write_result
from torchcaps.bench.scaling import run_scaling
from torchcaps.bench.scaling_page import render_scaling, scaling_summary

__all__ = [
    "CASES",
    "Candidate",
    "Case",
    "backbone",
    "capsnet",
    "dynamic",
    "em",
    "grids",
    "loading",
    "one_axis_sweep",
    "read_result",
    "render",
    "render_scaling",
    "routers",
    "run_case",
    "run_scaling",
    "scaling_summary",
    "sequences",
    "summary",
    "write_result",
]
