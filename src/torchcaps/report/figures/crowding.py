"""Two digits close together and what is decoded from the capsules of their classes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_decoder

# Distances in pixels of the pairs that are drawn.
DISTANCES = (1, 2, 3, 4, 6, 8, 10, 14)
SEARCHED = 4000


def requires(context: FigureContext) -> str | None:
    """Require a network with a decoder on pairs at a known distance."""
    name = context.recipe.data.name
    return needs_decoder(context) or (None if name == "crowded_digits" else f"the training data is '{name}'")


@torch.inference_mode()
def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw identical and different pairs at growing distance, each with the two decodings of the first run."""
    label, context = next(iter(contexts.items()))
    data, model = context.test_data, context.model
    batch = data.batch(range(min(SEARCHED, len(data))))
    chosen = []
    for identical in (1, 0):
        for distance in DISTANCES:
            found = (batch.meta["identical"] == identical) & (batch.meta["distance"] == distance)
            chosen += found.nonzero().flatten()[:1].tolist()
    images, labels = to_float(batch.images[chosen]), batch.labels[chosen]
    capsules = model(images)
    decoded = torch.stack([model.decode(capsules, classes) for classes in labels.unbind(1)], dim=1)
    predicted = capsules.activations.topk(2, dim=1).indices
    same = labels[:, 0] == labels[:, 1]
    # Of two identical digits only the most active class is a prediction, and one decoding is drawn twice.
    predicted = torch.where(same[:, None], predicted[:, :1].expand(-1, 2), predicted)
    return CaptionedFigure(
        viz.overlays(images, decoded, labels, predicted, labels, data.class_names),
        f"Identical digits (above) and different ones (below), {DISTANCES[0]} to {DISTANCES[-1]} pixels apart, with "
        f"what {label} decodes from the capsules of the two classes, in red and green; of identical digits both are "
        "decoded from one capsule, in yellow.",
        f"{len(chosen)} images of two digits at growing distance above their decodings.",
    )
