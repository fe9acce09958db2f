from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ShapeError
from torchcaps.viz import VoteView
from torchcaps.viz._style import ACCENT, WARM
from torchcaps.viz.vote_plane import AREA, LEAST

VOTES = torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 0.2]])
COUPLING = torch.tensor([[0.25, 0.25, 0.25], [0.75, 0.25, 0.0]])
POSES = torch.tensor([[0.2, 0.1], [0.8, 0.0]])
VIEW = VoteView(VOTES, COUPLING, POSES, 0.25, 0.5, ("before", "after"))


def test_dots_are_votes_with_the_area_of_their_coupling() -> None:
    figure = viz.vote_plane([VIEW, VIEW])
    figure.canvas.draw()
    assert len(figure.axes) == 4
    before, after = (cast(PathCollection, axes.collections[0]) for axes in figure.axes[:2])
    assert np.asarray(before.get_offsets()) == pytest.approx(VOTES.numpy())
    assert before.get_sizes() == pytest.approx([AREA] * 3)
    # The largest comes first.
    assert after.get_sizes() == pytest.approx([3 * AREA, AREA, LEAST])
    assert np.asarray(after.get_offsets()) == pytest.approx(VOTES.numpy())
    colours = [tuple(colour[:3]) for colour in np.asarray(after.get_facecolor())]
    assert colours == [to_rgb(ACCENT), to_rgb(ACCENT), to_rgb(WARM)]


def test_pose_is_a_cross_and_panels_share_limits() -> None:
    before, after = viz.vote_plane([VIEW]).axes
    assert [before.get_title("left"), after.get_title("left")] == ["before", "after"]
    for axes, pose in zip((before, after), POSES.tolist(), strict=True):
        assert np.asarray(axes.lines[-1].get_xydata()) == pytest.approx(np.array([pose]))
    assert before.get_xlim() == after.get_xlim()
    assert before.get_xlabel() == "principal axes of the votes (50% of their squares)"
    assert before.get_xlim() == pytest.approx((-1.08, 1.08), abs=1e-5)
    # Half as high as wide, about the middle between the votes.
    assert before.get_ylim() == pytest.approx((0.25 - 0.54, 0.25 + 0.54), abs=1e-5)


def test_shapes_are_checked() -> None:
    with raises_about(ShapeError, "views", "got 0"):
        viz.vote_plane([])
    with raises_about(ShapeError, "coupling", "(2, 2)"):
        viz.vote_plane([VIEW._replace(coupling=COUPLING[:, :2])])
    with raises_about(ShapeError, "poses", "(1, 2)"):
        viz.vote_plane([VIEW._replace(poses=POSES[:1])])
