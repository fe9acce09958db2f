"""Predictions on affine digits of networks trained on translated ones (Sabour et al. 2017, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.evaluation import evaluate
from torchcaps.evaluation.protocols import affine_digits
from torchcaps.report._examples import group_by_correctness
from torchcaps.report.context import CaptionedFigure, FigureContext

IMAGES = 500


def requires(context: FigureContext) -> str | None:
    """Require training on translated digits."""
    name = context.recipe.data.name
    return None if name == "translated_mnist" else f"the training data is '{name}', not 'translated_mnist'"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw affine digits with the predictions of every network, grouped by how many are correct."""
    source = next(iter(contexts.values())).recipe.data.options.get("source", "mnist")
    data = affine_digits(source).evenly_spaced(IMAGES)
    evaluations = {label: evaluate(context.model, data) for label, context in contexts.items()}
    groups = group_by_correctness(torch.stack([each.correct for each in evaluations.values()]))
    # The number comes first because long labels are shortened.
    predictions = {f"{each.accuracy:.1%} {label}": each.predictions for label, each in evaluations.items()}
    headings = {
        f"{heading} ({len(indices)} of {len(data)} images of {data.name})": indices[:count]
        for heading, count, indices in groups
    }
    images = to_float(data.batch(range(len(data))).images)
    return CaptionedFigure(
        viz.predictions(images, data.labels, predictions, headings, data.class_names),
        f"Images of {data.name} with label and predictions. Wrong predictions are orange. All networks were trained on "
        "translated digits only.",
        f"Digits under affine transformations with the predictions of {', '.join(predictions)}.",
    )
