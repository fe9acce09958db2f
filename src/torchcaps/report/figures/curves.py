"""Learning curves of a run."""

from __future__ import annotations

from torchcaps import viz
from torchcaps.report.context import CaptionedFigure, FigureContext


def requires(context: FigureContext) -> str | None:
    """Require at least one epoch."""
    return None if context.metrics else "metrics.csv is empty"


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw loss and accuracy over the epochs."""
    metrics = context.metrics
    kinds = "Loss and accuracy" if any(name.endswith("accuracy") for name in metrics) else "Loss"
    last = [f"{name.replace('_', ' ')} {values[-1]:.4g}" for name, values in metrics.items() if name.startswith("val")]
    return CaptionedFigure(
        viz.curves(metrics),
        f"{kinds} after every epoch. The validation split has the accent colour.",
        f"Curves of {kinds.lower()} over the epochs. Last values: {', '.join(last) or 'see the table of the run'}.",
    )
