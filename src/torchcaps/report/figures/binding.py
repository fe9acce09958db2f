"""Overlapping shapes and the two groups into which each network divides their pixels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.evaluation.binding import adjusted_rand_index, by_position, divide_pixels, shape_pixels
from torchcaps.report.context import CaptionedFigure, FigureContext

IMAGES = 8


def requires(context: FigureContext) -> str | None:
    """Require images of two shapes with the shapes alone."""
    name = context.recipe.data.name
    return None if name == "overlapping_shapes" else f"the training data is '{name}'"


@torch.inference_mode()
def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw images, the true division, that of every run, and that by position alone."""
    data = next(iter(contexts.values())).test_data
    batch = data.batch(range(IMAGES))
    assert batch.sources is not None
    images = to_float(batch.images)
    known = [shape_pixels(to_float(pair)) for pair in batch.sources]
    lit = [place for place, _ in known]
    rows: dict[str, list[Tensor]] = {"the two shapes": [groups for _, groups in known]}
    for label, context in contexts.items():
        rows[label] = divide_pixels(context.model.eval(), images, lit)
    rows["position of the pixels"] = [by_position(place) for place in lit]
    named = {}
    for label, divided in rows.items():
        scores = [adjusted_rand_index(ours, truth) for ours, (_, truth) in zip(divided, known, strict=True)]
        named[f"{label} ({sum(scores) / len(scores):.2f})"] = torch.stack(
            [_painted(groups, place) for groups, place in zip(divided, lit, strict=True)]
        )
    return CaptionedFigure(
        viz.image_rows({"image": images, **named}),
        "Pixels that belong to one of two overlapping shapes, and the two groups into which each network divides them. "
        "In brackets: mean adjusted Rand index of these images.",
        f"{IMAGES} images of two shapes, and the division of their pixels by {', '.join(contexts)}.",
    )


def _painted(groups: Tensor, lit: Tensor) -> Tensor:
    """Return an image [3, H, W] with the two groups in two colours."""
    painted = torch.zeros(3, *lit.shape)
    colours = torch.tensor([[1.0, 0.45, 0.1], [0.2, 0.6, 1.0]])  # [2, 3]
    painted[:, lit] = colours[groups].T
    return painted
