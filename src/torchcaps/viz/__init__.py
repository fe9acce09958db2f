"""Figures: arrays or a Trace in, a matplotlib Figure out. No function shows or saves a figure."""

import torchcaps._needs_train  # noqa: F401
from torchcaps.viz._style import Figure
from torchcaps.viz.comparison import comparison
from torchcaps.viz.confusion import confusion
from torchcaps.viz.coupling import coupling
from torchcaps.viz.curves import curves
from torchcaps.viz.diagnostics import diagnostics
from torchcaps.viz.errors import errors
from torchcaps.viz.gains import gains
from torchcaps.viz.image_grid import image_grid
from torchcaps.viz.image_rows import image_rows
from torchcaps.viz.inline_svg import inline_svg
from torchcaps.viz.lines import Points, lines
from torchcaps.viz.overlays import overlays
from torchcaps.viz.perturbations import perturbations
from torchcaps.viz.phases import phases
from torchcaps.viz.predictions import predictions
from torchcaps.viz.protocol import protocol, protocol_result
from torchcaps.viz.reconstruction_pair import reconstruction_pair
from torchcaps.viz.reconstructions import reconstructions
from torchcaps.viz.reliability import reliability
from torchcaps.viz.routing_curves import routing_curves
from torchcaps.viz.saliency_figure import explanation
from torchcaps.viz.sweep import sweep
from torchcaps.viz.transformations import transformations
from torchcaps.viz.vote_plane import VoteView, vote_plane

__all__ = [
    "Figure",
    "Points",
    "VoteView",
    "comparison",
    "confusion",
    "coupling",
    "curves",
    "diagnostics",
    "errors",
    "explanation",
    "gains",
    "image_grid",
    "image_rows",
    "inline_svg",
    "lines",
    "overlays",
    "perturbations",
    "phases",
    "predictions",
    "protocol",
    "protocol_result",
    "reconstruction_pair",
    "reconstructions",
    "reliability",
    "routing_curves",
    "sweep",
    "transformations",
    "vote_plane",
]
