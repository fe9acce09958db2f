"""Errors on new viewpoints over the angle to the nearest viewpoint of the training."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps import viz
from torchcaps.evaluation import PROTOCOLS
from torchcaps.evaluation.view_angles import SETS
from torchcaps.report.context import CaptionedFigure, FigureContext


def requires(context: FigureContext) -> str | None:
    """Require training on a part of known viewpoints."""
    data = context.recipe.data
    return None if data.name in SETS and "viewpoint" in data.options else f"the training data is '{data.name}'"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw one line per run."""
    lines: dict[str, viz.Points] = {}
    for label, context in contexts.items():
        (curve,) = PROTOCOLS["view_angles"](context.run, lambda done, total: None).curves
        lines[label] = (curve.at, curve.lines["error"])
    name = next(iter(contexts.values())).test_data.name
    return CaptionedFigure(
        viz.lines({name: lines}, x="degrees to the nearest trained view", y="error", scale="share"),
        "Error on new viewpoints over the angle to the nearest viewpoint of the training.",
        f"Curves of the error over the angle for {', '.join(lines)}.",
    )
