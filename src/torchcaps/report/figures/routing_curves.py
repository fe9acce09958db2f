"""Routing statistics of every layer over the epochs."""

from __future__ import annotations

from torchcaps import viz
from torchcaps.report.context import CaptionedFigure, FigureContext


def requires(context: FigureContext) -> str | None:
    """Require the diagnostics of at least one routing layer."""
    if not context.history:
        return "the run has no diagnostics.csv"
    return None if "entropy" in context.history["measure"] else "the model has no routing layer"


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the diagnostics that were recorded after every epoch."""
    history = context.history
    rows = zip(*(history[name] for name in ("layer", "iteration", "measure", "value")), strict=True)
    entropies = [((layer, iteration), value) for layer, iteration, measure, value in rows if measure == "entropy"]
    # The last row is the last iteration of the class layer at the last epoch.
    classes = [value for key, value in entropies if key == entropies[-1][0]]
    return CaptionedFigure(
        viz.routing_curves(history),
        "Statistics of each layer after every epoch, on a few validation images: entropy of the coupling and change of "
        "the logits (last iteration in full colour), predictions that uniform coupling would change, dead parents, and "
        "norm and coherence of the gradients (mean cosine between those of two batches).",
        f"Six panels of curves over {len(classes)} epochs. The entropy of the coupling into the classes changes from "
        f"{classes[0]:.3f} to {classes[-1]:.3f}.",
    )
