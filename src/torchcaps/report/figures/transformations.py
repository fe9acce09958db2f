"""Shifted outputs of a transforming auto-encoder."""

from __future__ import annotations

from typing import cast

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.models import TransformingAutoencoder
from torchcaps.ops.images import shift as shift_images
from torchcaps.report.context import CaptionedFigure, FigureContext

IMAGES = 8


def requires(context: FigureContext) -> str | None:
    """Require a transforming auto-encoder."""
    return None if isinstance(context.model, TransformingAutoencoder) else "the model is no transforming auto-encoder"


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw one image of each class, the target of a random shift, and the output."""
    model, data = cast(TransformingAutoencoder, context.model), context.evaluation.data
    labels = data.labels
    indices = torch.stack([(labels == label).nonzero()[0, 0] for label in labels.unique()[:IMAGES]])
    images = to_float(data.batch(indices).images)
    shift = model.sample_shift(len(images), torch.Generator().manual_seed(1))
    outputs = model.transform(images, shift)
    return CaptionedFigure(
        viz.transformations(images, shift_images(images, shift[:, 0], shift[:, 1]), outputs, shift),
        "Above each column: the shift in pixels, down and right. The capsules receive only the shift, add it to their "
        "positions, and generate the output.",
        f"{len(images)} test images, each above the shifted image, the output of the capsules, and their difference.",
    )
