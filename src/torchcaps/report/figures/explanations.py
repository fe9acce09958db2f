"""The pixels that predictions rest on, by routing."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import routing_relevance, saliency
from torchcaps.report._examples import CORRECT
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_routing


def requires(context: FigureContext) -> str | None:
    """Require capsule layers that relevance can be carried through."""
    missing = needs_routing(context)
    if missing is not None:
        return missing
    try:
        routing_relevance(context.model, torch.zeros(1, *context.model.image_shape))
    except ConfigError as error:
        return str(error)
    return None


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the least and the most certain images above their relevance."""
    evaluation = context.evaluation
    order = evaluation.activations.max(dim=-1).values.argsort()  # [N]
    half = min(CORRECT, len(order)) // 2
    indices = torch.cat([order[:half], order[len(order) - half :]]) if half else order
    images = to_float(evaluation.data.batch(indices).images)
    maps = saliency(context.model, images)
    names = evaluation.data.class_names
    labels = evaluation.activations[indices].argmax(dim=1).tolist()
    return CaptionedFigure(
        viz.explanation(images, maps, [names[label] for label in labels]),
        "The least certain images, then the most certain ones, with their most active class. Heat shows the pixels "
        "that its capsule is made of: coupling times activation, carried back through the capsule layers.",
        f"{len(indices)} test images, each above a heat map of its relevant pixels.",
    )
