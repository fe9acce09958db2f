"""Whole and scrambled images, and which of them each network takes for a whole: the Picasso problem."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.evaluation import novelty_of_data, scrambled
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_classifier

IMAGES, WHOLE, SCRAMBLED = 1000, 8, 16


def requires(context: FigureContext) -> str | None:
    """Require a classifier of images with one label."""
    if (reason := needs_classifier(context)) is not None:
        return reason
    return None if context.test_data.num_labels == 1 else "the images have 2 labels"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw images of the first run's data with the decision of every run of the same data."""
    data = next(iter(contexts.values())).test_data.evenly_spaced(IMAGES)
    parts = scrambled(data)
    parts = parts.evenly_spaced(IMAGES) if len(parts) != len(data) else parts
    pixels = torch.cat([to_float(each.batch(range(len(each))).images) for each in (data, parts)])
    labels = (torch.arange(len(pixels)) < len(data)).long()
    decisions = {}
    for label, context in contexts.items():
        if context.test_data.name != data.name:
            continue
        known, new = (novelty_of_data(context.model, each)["activation"] for each in (data, parts))
        threshold = known.double().quantile(0.95, interpolation="higher")
        accepted = torch.cat([known, new]).double() <= threshold
        decisions[f"{accepted[len(data) :].double().mean():.0%} {label}"] = accepted.long()
    groups = {
        "Whole images": range(WHOLE),
        "Parts in wrong places": range(len(data), len(data) + SCRAMBLED),
    }
    return CaptionedFigure(
        viz.predictions(pixels, labels, decisions, groups, ("parts", "whole")),
        f"Images of {data.name}, and whether each network takes them for a whole at the threshold that accepts 95 % of "
        "the whole images. In front of each network: the share of images with parts in wrong places that it accepts.",
        f"Whole images and images with parts in wrong places, with the decisions of {', '.join(decisions)}.",
    )
