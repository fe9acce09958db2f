"""Phases of the oscillators of a Kuramoto network."""

from __future__ import annotations

from typing import cast

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.models import KuramotoNet
from torchcaps.report._examples import clearest_image
from torchcaps.report.context import CaptionedFigure, FigureContext


def requires(context: FigureContext) -> str | None:
    """Require a network of oscillators."""
    return None if isinstance(context.model, KuramotoNet) else "the model has no oscillators"


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the phases of one channel at every iteration, for the clearest image."""
    model, evaluation = cast(KuramotoNet, context.model), context.evaluation
    data, index = evaluation.data, clearest_image(evaluation)
    batch = data.batch([index])
    image = to_float(batch.images)
    angles = model.phases(image)[:, 0]  # [R, C, h, w]
    # The channel with the lowest order parameter at the end separates the regions of the image best.
    order = torch.hypot(angles[-1].cos().mean(dim=(1, 2)), angles[-1].sin().mean(dim=(1, 2)))  # [C]
    channel = int(order.argmin())
    name = data.class_names[int(batch.labels[0])]
    return CaptionedFigure(
        viz.phases(image[0], angles[:, channel]),
        f"One test image of class {name}, and the phases of channel {channel} of the first oscillator layer at the "
        "start and after each iteration. Equal colours are equal phases.",
        f"An image of class {name} and {len(angles)} maps of phases, from the start to the last iteration.",
    )
