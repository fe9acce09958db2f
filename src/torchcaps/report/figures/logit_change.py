"""Convergence of dynamic routing, as in figure A.1 of Sabour et al. 2017."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from torchcaps import viz
from torchcaps.data import ImageDataset, to_float
from torchcaps.diagnostics import logit_change
from torchcaps.models import ImageModel
from torchcaps.nn import DynamicRouting
from torchcaps.report.context import CaptionedFigure, FigureContext

IMAGES = 500
# Images whose votes are in memory together.
BATCH = 32
# More iterations than networks are trained with, which shows whether routing converges.
ITERS = 10


def requires(context: FigureContext) -> str | None:
    """Require dynamic routing into the classes."""
    return None if class_router(context.model) else "the model has no dynamic routing into the classes"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw the change of logits and coupling at each of ten iterations, one line per run."""
    panels: dict[str, dict[str, viz.Points]] = {"Change of the routing logits": {}, "Change of the coupling": {}}
    for label, context in contexts.items():
        router = cast(DynamicRouting, class_router(context.model))
        changes = mean_changes(context.model, context.test_data.evenly_spaced(IMAGES), ITERS).tolist()  # [2][R-1]
        for panel, change in zip(panels.values(), changes, strict=True):
            panel[f"{label} (trained with {router.iters})"] = (range(2, ITERS + 1), change)
    return CaptionedFigure(
        viz.lines(panels, x="iteration", y="mean change since the previous iteration", scale="log"),
        f"Mean absolute change of logits and coupling at each iteration. All networks route with {ITERS} iterations.",
        f"Two panels of curves over {ITERS} iterations for {', '.join(contexts)}.",
    )


def class_router(model: ImageModel) -> DynamicRouting | None:
    """Return the router into the classes if it is dynamic routing."""
    router = getattr(model.head, "routing", None)
    return router if isinstance(router, DynamicRouting) else None


@torch.inference_mode()
def mean_changes(model: ImageModel, data: ImageDataset, iters: int) -> Tensor:
    """Return the mean absolute changes of logits and coupling at each iteration [2, R-1], over all images.

    Args:
        model: The model.
        data: The images.
        iters: Number of iterations.

    Returns:
        The means [2, R-1].
    """
    total = torch.zeros(2, iters - 1)
    for batch in data.batches(BATCH):
        trace = cast(Any, model.head).trace(model.features(to_float(batch.images)), iters=iters)
        moved = trace.coupling.diff(dim=0).abs().mean(dim=(1, 2, 3))
        total += len(batch.images) * torch.stack([logit_change(trace.logits), moved])
    return total / len(data)
