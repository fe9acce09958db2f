"""The wrong predictions that the network is most certain of."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_classifier

SHOWN = 18


def requires(context: FigureContext) -> str | None:
    """Require one label per image, and at least one wrong prediction."""
    if (reason := needs_classifier(context)) is not None:
        return reason
    if context.test_data.num_labels != 1:
        return "the figure needs one label per image"
    return "all test images are classified correctly" if context.evaluation.correct.all() else None


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the most certain errors, the most certain first."""
    evaluation = context.evaluation
    names, wrong = evaluation.data.class_names, (~evaluation.correct).nonzero().squeeze(1)  # [n]
    certainty = evaluation.activations[wrong].max(dim=1).values  # [n]
    if evaluation.temperature is not None:
        certainty = evaluation.probabilities[wrong].max(dim=1).values
    order = certainty.argsort(descending=True, stable=True)[:SHOWN]
    chosen = wrong[order]
    images = to_float(evaluation.data.batch(chosen).images)  # [n, C, H, W]
    labels = [names[label] for label in evaluation.labels[chosen].tolist()]
    pairs = zip(evaluation.predictions[chosen].tolist(), certainty[order].tolist(), strict=True)
    predictions = [f"{names[predicted]} {value:.0%}" for predicted, value in pairs]
    kind = "activation" if evaluation.temperature is None else "probability"
    text = f"{len(chosen)} of {len(wrong):,} errors on {evaluation.count:,} test images, the most certain first."
    return CaptionedFigure(
        viz.errors(_visible(images), labels, predictions),
        f"{text} Above each image the prediction with its {kind}, below it the label.",
        f"Wrongly classified images. {text}",
    )


def _visible(images: torch.Tensor) -> torch.Tensor:
    """Return the first image of a stereo pair; other images are returned unchanged."""
    return images[:, :1] if images.shape[1] == 2 else images
