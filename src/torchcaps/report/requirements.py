"""Requirements that several figures share: each returns the reason why a run cannot have a figure, or None."""

from __future__ import annotations

from torchcaps.diagnostics import routing_layers
from torchcaps.models import ImageModel
from torchcaps.report.context import FigureContext


def needs_classifier(context: FigureContext) -> str | None:
    """Require class capsules."""
    return None if context.model.is_classifier else "the model is no classifier"


def needs_decoder(context: FigureContext) -> str | None:
    """Require a classifier with a decoder."""
    missing = None if context.model.decoder is not None else "the model has no decoder"
    return needs_classifier(context) or missing


def needs_routing(context: FigureContext) -> str | None:
    """Require a classifier with at least one routing layer."""
    missing = None if routing_layers(context.model) else "the model has no routing layer"
    return needs_classifier(context) or missing


def needs_trace(context: FigureContext) -> str | None:
    """Require a classifier that traces the routing into its classes."""
    missing = "the model has no routing layer" if type(context.model).trace is ImageModel.trace else None
    return needs_classifier(context) or missing
