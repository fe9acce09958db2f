"""The pixels that predictions rest on, by routing."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import sentence_words, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import routing_relevance, saliency
from torchcaps.report._examples import CORRECT
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_routing

# What a sample is, its parts, and how the figure shows them, by the number of axes of a batch.
KINDS = {
    3: ("signal", "samples", "Dark shades mark the samples"),
    4: ("image", "pixels", "Heat shows the pixels"),
    5: ("volume", "voxels", "Heat in the most relevant slice shows the voxels"),
}
SENTENCE = ("sentence", "words", "Bars show the words")


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
    stored = evaluation.data.batch(indices).images
    images, words = to_float(stored), sentence_words(evaluation.data.name, stored)
    maps = saliency(context.model, images)
    names = evaluation.data.class_names
    labels = evaluation.activations[indices].argmax(dim=1).tolist()
    kind, part, shown = KINDS[images.dim()] if words is None else SENTENCE
    return CaptionedFigure(
        viz.explanation(images, maps, [names[label] for label in labels], words),
        f"The least certain {kind}s, then the most certain ones, with their most active class. {shown} that its "
        "capsule is made of: coupling times activation, carried back through the capsule layers.",
        f"{len(indices)} test {kind}s with the relevance of their {part}.",
    )
