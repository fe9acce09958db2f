"""Votes for two classes before and after routing."""

from __future__ import annotations

import torch

from torchcaps import viz
from torchcaps.data import to_float
from torchcaps.diagnostics import plane_of
from torchcaps.report._examples import clearest_image
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_trace
from torchcaps.types import Trace


@torch.inference_mode()
def requires(context: FigureContext) -> str | None:
    """Require routing of more than one iteration."""
    reason = needs_trace(context)
    if reason is not None:
        return reason
    iters = context.model.trace(torch.zeros(1, *context.model.image_shape)).iters
    return None if iters > 1 else "the routing has one iteration"


@torch.inference_mode()
def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the votes for the most active class and the second, for the clearest image."""
    evaluation = context.evaluation
    trace = context.model.trace(to_float(evaluation.data.batch([clearest_image(evaluation)]).images))
    names = evaluation.data.class_names
    parents = trace.activations[-1, 0].topk(min(2, len(names))).indices.tolist()
    shown = " and ".join(names[parent] for parent in parents)
    return CaptionedFigure(
        viz.vote_plane([view_parent(trace, parent, names[parent]) for parent in parents]),
        f"The votes for the classes {shown} at the first and the last iteration, in the plane of their principal axes. "
        "The area of a dot is its coupling; orange is below the uniform coupling. The cross is the pose of the class.",
        f"Scatter plots of the votes for the classes {shown}, before and after routing.",
    )


def view_parent(trace: Trace, parent: int, name: str) -> viz.VoteView:
    """Project the votes for one parent, of the first image of a trace.

    The titles give the median coupling of the tenth of the votes nearest to the parent's last pose, and of the tenth
    farthest from it.

    Args:
        trace: The trace.
        parent: Number of the parent.
        name: Name of the parent in the title.

    Returns:
        The view.
    """
    votes, poses = trace.votes[0, :, parent], trace.poses[:, 0, parent]  # [I, D], [R, D]
    coupling = trace.coupling[[0, -1], 0, :, parent]  # [2, I]
    order = (votes - poses[-1]).norm(dim=-1).argsort()  # [I]
    tenth = max(1, len(order) // 10)
    near, far = (coupling[:, chosen].median(dim=1).values.tolist() for chosen in (order[:tenth], order[-tenth:]))  # [2]
    active = trace.activations[[0, -1], 0, parent].tolist()  # [2]
    first, last = (
        f"Class {name}, iteration {iteration}: activation {active[end]:.2f}\n"
        f"median coupling: nearest tenth {near[end]:.3f}, farthest {far[end]:.3f}"
        for end, iteration in enumerate((1, trace.iters))
    )
    plane, explained = plane_of(votes, poses[-1])  # [D, 2]
    uniform = 1 / trace.votes.shape[2]
    return viz.VoteView(votes @ plane, coupling, poses[[0, -1]] @ plane, uniform, explained, (first, last))
