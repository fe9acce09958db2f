"""Decodings of a perturbed class capsule, as in figure 4 of Sabour et al. 2017."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.evaluation import OFFSETS, perturb
from torchcaps.report._examples import clearest_image
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_decoder

requires = needs_decoder


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the capsule of the clearest image with each dimension changed separately."""
    model, evaluation = context.model, context.evaluation
    index = clearest_image(evaluation)
    images = perturb(model, model(to_float(evaluation.data.batch([index]).images)))
    name = evaluation.data.class_names[int(evaluation.activations[index].argmax())]
    return CaptionedFigure(
        viz.perturbations(images, OFFSETS),
        f"The capsule of class {name}, with one dimension at a time changed by {OFFSETS[0]} to {OFFSETS[-1]}. Each row "
        "is a dimension. The framed column is the unchanged capsule.",
        f"Grid of {images.shape[0]} rows and {images.shape[1]} columns of decoded images of class {name}. Each row "
        "changes one dimension of the capsule.",
    )
