"""Training loss of several runs, as in figure A.2 of Sabour et al. 2017."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torchcaps import viz
from torchcaps.report.context import CaptionedFigure, FigureContext


def requires(context: FigureContext) -> str | None:
    """Require a training loss."""
    return None if _points(context) else "metrics.csv has no training loss"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw the training loss over the epochs, one line per run."""
    lines: dict[str, viz.Points] = {}
    for label, context in contexts.items():
        points = _points(context)
        lines[f"{label}, last {points[-1][1]:.4g}"] = ([epoch for epoch, _ in points], [loss for _, loss in points])
    return CaptionedFigure(
        viz.lines({"Training loss": lines}, x="epoch"),
        "Training loss after every epoch, with the last value in the legend.",
        f"Curves of the training loss over the epochs: {'; '.join(lines)}.",
    )


def _points(context: FigureContext) -> list[tuple[float, float]]:
    """Return the epochs with a finite loss."""
    metrics = context.metrics
    points = zip(metrics.get("epoch", ()), metrics.get("train_loss", ()), strict=True)
    return [(epoch, loss) for epoch, loss in points if not math.isnan(loss)]
