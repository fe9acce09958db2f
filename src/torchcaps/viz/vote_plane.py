"""Votes in a plane, before and after routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.viz._images import to_array
from torchcaps.viz._style import ACCENT, FAINT, INK, LABEL, TITLE, WARM, new_figure, style_axes

# The area of a dot of uniform coupling, in square points.
AREA = 30.0
# Dots of almost no coupling remain visible.
LEAST = 0.6


class VoteView(NamedTuple):
    """The votes of all children for one parent in a plane, at the first and the last iteration.

    Attributes:
        votes: Projected votes.
        coupling: Coupling at the first and the last iteration.
        poses: Projected poses of the parent at the first and the last iteration.
        uniform: Coupling of uniform routing.
        explained: Fraction of the squared votes that lies in the plane.
        titles: Titles of the two panels.
    """

    votes: Tensor  # [I, 2]
    coupling: Tensor  # [2, I]
    poses: Tensor  # [2, 2]
    uniform: float
    explained: float
    titles: tuple[str, str]


def vote_plane(views: Sequence[VoteView]) -> Figure:
    """Draw one row per parent: its votes before and after routing, and its pose as a cross.

    The area of a dot is the coupling of the vote. Dots below the uniform coupling are orange.

    Args:
        views: One view per parent.

    Returns:
        The figure.

    Raises:
        ShapeError: If there are no views, or shapes do not fit.

    Example:
        >>> import torch
        >>> view = VoteView(torch.rand(9, 2), torch.full((2, 9), 0.1), torch.rand(2, 2), 0.1, 0.9, ("first", "last"))
        >>> len(vote_plane([view]).axes)
        2
    """
    if not views:
        raise ShapeError("views: expected at least one parent, got 0")
    for view in views:
        _check(view)
    boxes = [_box(view) for view in views]
    flat = [float((high - low)[1] / (high - low)[0]) for low, high in boxes]
    figure = new_figure(8.6, 0.4 + sum(0.95 + 3.6 * ratio for ratio in flat))
    rows = figure.subplots(len(views), 2, squeeze=False, height_ratios=flat)
    for axes, view, (low, high) in zip(rows, views, boxes, strict=True):
        for moment, panel in enumerate(axes):
            _scatter(panel, view, moment)
            # Both panels show the same region.
            panel.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    dots = [
        Line2D([], [], linestyle="", marker="o", color=colour, alpha=0.7, markersize=float(np.sqrt(AREA * share)))
        for share, colour in ((0.25, WARM), (1, ACCENT), (3, ACCENT))
    ]
    cross = Line2D([], [], linestyle="", marker="X", color=INK, markeredgecolor="white", markersize=9)
    names = ["1/4 of uniform coupling", "uniform coupling", "3 times uniform coupling", "pose of the class"]
    figure.legend(
        [*dots, cross],
        names,
        loc="outside lower center",
        ncols=4,
        borderaxespad=0,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure


def _check(view: VoteView) -> None:
    count = len(view.votes)
    for name, value, expected in (
        ("votes", view.votes, (count, 2)),
        ("coupling", view.coupling, (2, count)),
        ("poses", view.poses, (2, 2)),
    ):
        if value.shape != expected:
            raise ShapeError(f"{name}: expected {expected}, got {tuple(value.shape)}")


def _scatter(axes: Axes, view: VoteView, moment: int) -> None:
    share = to_array(view.coupling[moment] / view.uniform)  # [I]
    # Small dots are drawn last, above large ones. The tolerance excludes rounding errors of uniform coupling.
    order = np.argsort(-share)
    colours = np.where(share[order] < 0.999, WARM, ACCENT)
    areas = np.maximum(AREA * share[order], LEAST)
    style_axes(axes, grid=False).axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    axes.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    axes.scatter(*to_array(view.votes)[order].T, s=areas, c=colours, alpha=0.6, linewidths=0)
    axes.plot(*to_array(view.poses[moment]), marker="X", color=INK, markeredgecolor="white", markersize=10)
    axes.set_title(view.titles[moment], **{**TITLE, "fontsize": 9})
    axes.set_xlabel(f"principal axes of the votes ({view.explained:.0%} of their squares)", **LABEL)


def _box(view: VoteView) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the corners of a box around all points, with a margin, whose height is 0.5 to 1 times its width."""
    points = np.concatenate([to_array(view.votes), to_array(view.poses)])  # [I+2, 2]
    low, high = points.min(axis=0), points.max(axis=0)
    middle, half = (low + high) / 2, 0.54 * np.maximum(high - low, 1e-6)
    half = np.array([max(half[0], half[1]), max(half[1], half[0] / 2)])
    return middle - half, middle + half
