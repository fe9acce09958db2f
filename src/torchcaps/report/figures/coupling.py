"""Routing of one image into the classes."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.report._examples import clearest_image
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_trace

requires = needs_trace


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw coupling, entropy and activations of the clearest image at every iteration."""
    evaluation = context.evaluation
    index = clearest_image(evaluation)
    trace = context.model.trace(to_float(evaluation.data.batch([index]).images))
    names = evaluation.data.class_names
    name = " and ".join(names[label] for label in evaluation.labels[index].view(-1).tolist())
    first, last = (float(trace.activations[step, 0].max()) for step in (0, -1))
    return CaptionedFigure(
        viz.coupling(trace, class_names=names),
        f"One test image of class {name}. Top: the coupling of the children to each class at every iteration; blue is "
        "above the uniform coupling, orange below. Bottom: the entropy of the coupling (1 is uniform) and the "
        "activations of the class capsules.",
        f"Heat maps of the coupling at {trace.iters} iterations, its entropy, and the activations. The largest "
        f"activation changes from {first:.2f} to {last:.2f}.",
    )
