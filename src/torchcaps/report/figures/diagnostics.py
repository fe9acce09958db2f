"""Routing statistics of every layer of the trained model."""

from __future__ import annotations

from torchcaps import viz
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_routing

requires = needs_routing


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw entropy, logit change, unused parents and gradient norms."""
    diagnosis = context.diagnosis
    table, classes = diagnosis.to_json(), diagnosis.layers[-1]
    changed = "an unknown fraction" if classes.changed is None else f"{classes.changed:.1%}"
    return CaptionedFigure(
        viz.diagnostics(table["layers"], table["gradient_norms"]),
        f"Statistics of {diagnosis.count} images for each layer: entropy of the coupling and change of the logits at "
        "each iteration, parents that are never active (dead) or receive almost no coupling (starved), and gradient "
        f"norms. Uniform coupling into the classes would change {changed} of the predictions.",
        f"Four panels for {len(diagnosis.layers)} routing layers. The entropy of the coupling into the classes changes "
        f"from {classes.entropy[0]:.3f} to {classes.entropy[-1]:.3f}. {classes.dead:.0%} of the classes are dead.",
    )
