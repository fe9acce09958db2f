"""Pictures: arrays or a Trace in, a matplotlib Figure out. Nothing here shows or saves one by itself."""

from matplotlib.figure import Figure

from torchcaps.viz.answers import answers
from torchcaps.viz.comparison import comparison
from torchcaps.viz.confusion import confusion
from torchcaps.viz.contact_sheet import contact_sheet
from torchcaps.viz.coupling import coupling
from torchcaps.viz.curves import curves
from torchcaps.viz.diagnostics import diagnostics
from torchcaps.viz.findings import findings
from torchcaps.viz.lines import Points, lines
from torchcaps.viz.overlays import overlays
from torchcaps.viz.pair import pair
from torchcaps.viz.perturbations import perturbations
from torchcaps.viz.phases import phases
from torchcaps.viz.reconstructions import reconstructions
from torchcaps.viz.routing_curves import routing_curves
from torchcaps.viz.transformations import transformations
from torchcaps.viz.vote_plane import VoteView, vote_plane

__all__ = [
    "Figure",
    "Points",
    "VoteView",
    "answers",
    "comparison",
    "confusion",
    "contact_sheet",
    "coupling",
    "curves",
    "diagnostics",
    "findings",
    "lines",
    "overlays",
    "pair",
    "perturbations",
    "phases",
    "reconstructions",
    "routing_curves",
    "transformations",
    "vote_plane",
]
