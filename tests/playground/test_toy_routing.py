"""The toy keeps what its hint says, for every routing that it offers."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
import torch

from torchcaps.playground.toy_geometry import (
    Part,
    PlanePose,
    decode_poses,
    place_parts,
    to_pose,
    vote_parameters,
    wholes_of,
)
from torchcaps.playground.toy_routing import DEFAULT_ITERS, ToyRouting, route
from torchcaps.playground.toy_scenes import SceneName, make_scene
from torchcaps.types import Trace

ROUTINGS: tuple[ToyRouting, ...] = get_args(ToyRouting)
# Half a part or more; shorter ways are within the tolerance of agreement.
DRAGS = [(dx, dy) for dx, dy in itertools.product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=2) if (dx, dy) != (0.0, 0.0)]


def routed(name: SceneName, routing: ToyRouting, seed: int = 0) -> Trace:
    scene = make_scene(name, seed)
    wholes = wholes_of({part.kind for part in scene.parts}, upside_down=scene.upside_down)
    return route(scene.parts, wholes, routing, DEFAULT_ITERS[routing])


def moved(parts: list[Part], n: int, dx: float, dy: float, turn: float = 0) -> list[Part]:
    pose = parts[n].pose
    changed = PlanePose(pose.x + dx, pose.y + dy, pose.angle + turn, pose.size)
    return [Part(part.kind, changed) if i == n else part for i, part in enumerate(parts)]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("n", range(8))
def test_dragged_part_belongs_to_no_whole(routing: ToyRouting, n: int) -> None:
    parts, own = make_scene("both").parts, n // 4
    stay = [i for i in range(4 * own, 4 * own + 4) if i != n]
    for dx, dy in DRAGS:
        trace = route(moved(parts, n, dx, dy), ("house", "boat"), routing, DEFAULT_ITERS[routing])
        coupling, activations = trace.coupling[-1, 0], trace.activations[-1, 0]
        assert coupling[n].max() < 0.5, (dx, dy)
        assert coupling[stay, own].min() > 0.6, (dx, dy)
        assert activations[1 - own] > 0.9, (dx, dy)


# The parts of each whole, by scene; "both" is above, and what one capsule cannot hold below.
MEMBERS: dict[SceneName, tuple[tuple[int, range], ...]] = {
    "house": ((0, range(4)),),
    "boat": ((1, range(4)),),
    "stray": ((0, range(4)),),
    "crowded": ((0, range(4)), (1, range(4, 8))),
    "upside-down": ((0, range(4)), (1, range(4, 8))),
    "face": ((0, range(4)),),
}


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("name", MEMBERS)
def test_hint_holds_in_every_scene(name: SceneName, routing: ToyRouting) -> None:
    scene = make_scene(name)
    wholes = wholes_of({part.kind for part in scene.parts}, upside_down=scene.upside_down)
    for own, members in MEMBERS[name]:
        others = [whole for whole, _ in MEMBERS[name] if whole != own]
        for n, (dx, dy) in itertools.product(members, DRAGS):
            trace = route(moved(scene.parts, n, dx, dy), wholes, routing, DEFAULT_ITERS[routing])
            coupling, activations = trace.coupling[-1, 0], trace.activations[-1, 0]
            assert coupling[n].max() < 0.5, (n, dx, dy)
            assert min(coupling[i, own] for i in members if i != n) > 0.55, (n, dx, dy)
            assert all(activations[whole] > 0.9 for whole in others), (n, dx, dy)
            if routing == "em":
                assert activations[own] < 0.5, (n, dx, dy)


def test_house_capsule_moves_to_the_house_that_is_whole() -> None:
    parts = make_scene("two houses").parts
    for n, (dx, dy) in itertools.product(range(4), DRAGS):
        trace = route(moved(parts, n, dx, dy), ("house", "boat"), "em", DEFAULT_ITERS["em"])
        assert trace.activations[-1, 0, 0] > 0.9, (n, dx, dy)
        assert trace.coupling[-1, 0, 4:, 0].min() > 0.9, (n, dx, dy)
        assert trace.coupling[-1, 0, :4].sum(dim=-1).max() < 0.5, (n, dx, dy)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("turn", [-90, -40, 40, 90, 180])
def test_turned_part_belongs_to_no_whole(routing: ToyRouting, turn: float) -> None:
    trace = route(moved(make_scene("both").parts, 0, 0, 0, turn), ("house", "boat"), routing, DEFAULT_ITERS[routing])
    assert trace.coupling[-1, 0, 0].max() < 0.5
    assert trace.coupling[-1, 0, 1:4, 0].min() > 0.6
    assert trace.activations[-1, 0, 1] > 0.9
    if routing == "em":
        assert trace.activations[-1, 0, 0] < 0.5


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("name", "winner"), [("house", 0), ("boat", 1)])
def test_complete_whole_is_active(routing: ToyRouting, name: SceneName, winner: int) -> None:
    trace = routed(name, routing)
    assert trace.activations[-1, 0, winner] > 0.9
    assert trace.activations[-1, 0, 1 - winner] < 0.1
    votes = vote_parameters(make_scene(name).parts, ("house", "boat"))
    found, true = to_pose(decode_poses(trace.poses[-1, 0, winner])), to_pose(votes[0, winner])
    assert (found.x, found.y, found.angle) == pytest.approx((true.x, true.y, true.angle), abs=0.5)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("name", ["both", "crowded"])
def test_two_wholes_at_once(routing: ToyRouting, name: SceneName) -> None:
    trace = routed(name, routing)
    coupling = trace.coupling[-1, 0]
    assert coupling[:8].argmax(dim=-1).tolist() == [0] * 4 + [1] * 4
    assert coupling[:8].amax(dim=-1).min() > 0.8
    assert trace.activations[-1, 0].min() > 0.9
    # The strays of the crowded scene.
    assert coupling[8:].sum(dim=-1).max(dim=0).values < 0.5 if name == "crowded" else len(coupling) == 8


@pytest.mark.parametrize("routing", ROUTINGS)
def test_stray_part_belongs_to_no_whole(routing: ToyRouting) -> None:
    coupling = routed("stray", routing).coupling[-1, 0]
    assert coupling[4].sum() < 0.5
    assert coupling[:4, 0].min() > 0.8


@pytest.mark.parametrize("routing", ROUTINGS)
def test_upside_down_house_explains_less(routing: ToyRouting) -> None:
    parts = make_scene("upside-down").parts
    votes = vote_parameters(parts, ("upside-down house",))
    # Walls and sail vote for the same upside-down house.
    torch.testing.assert_close(votes[1, 0], votes[4, 0], atol=1e-6, rtol=0)
    trace = routed("upside-down", routing)
    assert trace.activations[-1, 0, :2].min() > 0.9
    assert trace.activations[-1, 0, 2] < 0.2
    assert trace.coupling[-1, 0].argmax(dim=-1).tolist() == [0] * 4 + [1] * 4


def test_one_capsule_cannot_hold_two_houses() -> None:
    truths = [-2.5, 2.6]
    xs = {routing: to_pose(decode_poses(routed("two houses", routing).poses[-1, 0, 0])).x for routing in ROUTINGS}
    assert min(abs(xs["em"] - x) for x in truths) < 0.3
    assert min(abs(xs["dynamic"] - x) for x in truths) > 1
    coupling = routed("two houses", "em").coupling[-1, 0]
    assert coupling[:4, 0].min() > 0.9
    assert coupling[4:].sum(dim=-1).max() < 0.5


def test_picasso_face() -> None:
    assert routed("face", "em").activations[-1, 0, 0] > 0.9
    assert routed("picasso", "em").activations[-1, 0, 0] < 0.1
    assert routed("picasso", "dynamic").activations[-1, 0, 0] < 0.5 < routed("face", "dynamic").activations[-1, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_random_parts_form_no_whole(seed: int) -> None:
    assert routed("random", "em", seed).activations[-1, 0].max() < 0.5
    undecided = routed("random", "dynamic", seed)
    assert undecided.coupling[-1, 0].max() < 0.5
    assert undecided.activations[-1, 0].max() < 0.7


@pytest.mark.parametrize(("x", "y", "turn"), [(1.3, -0.4, 0), (-2.0, 1.0, 35), (0.5, 0.8, -80)])
def test_equivariance(x: float, y: float, turn: float) -> None:
    # The pose follows, the activation stays.
    trace = route(place_parts("house", PlanePose(x, y, turn, 1.2)), ("house", "boat"), "em", 8)
    found = to_pose(decode_poses(trace.poses[-1, 0, 0]))
    assert (found.x, found.y, found.angle) == pytest.approx((x, y, turn), abs=0.05)
    assert trace.activations[-1, 0, 0] > 0.9
