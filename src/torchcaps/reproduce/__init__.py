"""The papers' tables and pictures, each as networks to train, numbers to measure and figures to draw."""

from torchcaps.reproduce.entry import (
    Network,
    Planned,
    Reproduction,
    alters,
    list_reproductions,
    load_reproduction,
    plan,
    run_name,
)
from torchcaps.reproduce.figures import FIGURES
from torchcaps.reproduce.measures import MEASURES, Measure
from torchcaps.reproduce.report import write_report
from torchcaps.reproduce.run import reproduce, result_file
from torchcaps.reproduce.table import lines, markdown

__all__ = [
    "FIGURES",
    "MEASURES",
    "Measure",
    "Network",
    "Planned",
    "Reproduction",
    "alters",
    "lines",
    "list_reproductions",
    "load_reproduction",
    "markdown",
    "plan",
    "reproduce",
    "result_file",
    "run_name",
    "write_report",
]
