"""The HTML report of a run, and the registry of the figures in it.

Everything is loaded when it is first used: `torchcaps show --help` reads the registry without importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchcaps._extras import explain_missing

if TYPE_CHECKING:
    from torchcaps.report.context import CaptionedFigure, FigureContext
    from torchcaps.report.registry import FIGURES, FigureEntry, draw_figure
    from torchcaps.report.write import save_diagnosis, write_report

_NAMES = {
    "FIGURES": "registry",
    "CaptionedFigure": "context",
    "FigureContext": "context",
    "FigureEntry": "registry",
    "draw_figure": "registry",
    "save_diagnosis": "write",
    "write_report": "write",
}

__all__ = [
    "FIGURES",
    "CaptionedFigure",
    "FigureContext",
    "FigureEntry",
    "draw_figure",
    "save_diagnosis",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        with explain_missing():
            return getattr(importlib.import_module(f"torchcaps.report.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.report' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
