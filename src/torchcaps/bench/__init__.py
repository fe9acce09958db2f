"""Benchmarks: our layers and steps beside the usual ones, on this machine."""

from torchcaps.bench import capsnet, dynamic, em, loading, routers
from torchcaps.bench._case import CASES, Case, Contender, around
from torchcaps.bench.compare import compare
from torchcaps.bench.compare_table import lines as compare_lines
from torchcaps.bench.compare_table import markdown as compare_markdown
from torchcaps.bench.render import read_result, render, summary
from torchcaps.bench.run import run_case, write_result

__all__ = [
    "CASES",
    "Case",
    "Contender",
    "around",
    "capsnet",
    "compare",
    "compare_lines",
    "compare_markdown",
    "dynamic",
    "em",
    "loading",
    "read_result",
    "render",
    "routers",
    "run_case",
    "summary",
    "write_result",
]
