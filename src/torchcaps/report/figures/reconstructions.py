"""Test images next to their reconstructions, as in figures 3 and 5 of Sabour et al. 2017."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.report._examples import class_examples, pair_examples
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_decoder

requires = needs_decoder


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw correct and wrong images with their decodings; two decodings each if images have two labels."""
    return _draw_pairs(context) if context.evaluation.data.num_labels == 2 else _draw_single(context)


def _draw_single(context: FigureContext) -> CaptionedFigure:
    model, evaluation = context.model, context.evaluation
    indices, targets = class_examples(evaluation)
    images = to_float(evaluation.data.batch(indices).images)
    decoded = model.decode(model(images), targets)
    labels, predictions = evaluation.labels[indices], evaluation.predictions[indices]
    wrong = int((labels != predictions).sum()) // 2
    return CaptionedFigure(
        viz.reconstructions(images, decoded, labels, predictions, targets, evaluation.data.class_names),
        "Above each image: label, prediction, and the class whose capsule is decoded. Wrong predictions (orange) are "
        "decoded twice: from the prediction and from the label.",
        f"{len(indices) - 2 * wrong} correctly classified test images and {wrong} wrongly classified ones, each above "
        "the decoding of its class capsule.",
    )


def _draw_pairs(context: FigureContext) -> CaptionedFigure:
    model, evaluation = context.model, context.evaluation
    indices, targets = pair_examples(evaluation)
    images = to_float(evaluation.data.batch(indices).images)
    capsules = model(images)
    decoded = torch.stack([model.decode(capsules, classes) for classes in targets.unbind(1)], dim=1)
    labels, predictions = evaluation.labels[indices], evaluation.predictions[indices]
    return CaptionedFigure(
        viz.overlays(images, decoded, labels, predictions, targets, evaluation.data.class_names),
        "Two class capsules of each image, decoded separately, in red and green over the image. Wrong predictions "
        "(orange) are decoded twice: from the predictions and from the labels. A star marks a class that is neither "
        "label nor prediction; its capsule should contain nothing of the image.",
        f"{len(indices)} test images, each above the decodings of two of its class capsules.",
    )
