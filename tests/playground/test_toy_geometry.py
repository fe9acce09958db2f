from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps.playground.toy_geometry import (
    PLACES,
    VOTE_LENGTH,
    WHOLES,
    Part,
    PlanePose,
    ToyRouting,
    WholeName,
    decode_poses,
    encode_poses,
    matrix,
    place_parts,
    pose_parameters,
    route,
    to_pose,
    vote_parameters,
)
from torchcaps.playground.toy_scenes import make_scene

poses = st.builds(PlanePose, st.floats(-6, 6), st.floats(-4, 4), st.floats(-179, 179), st.floats(0.5, 2))
ROUTINGS: tuple[ToyRouting, ...] = ("em", "dynamic", "kmeans")


def close(one: PlanePose, other: PlanePose) -> bool:
    turn = math.remainder(one.angle - other.angle, 360)
    rest = ((one.x, other.x), (one.y, other.y), (one.size, other.size))
    return abs(turn) < 1e-6 and all(math.isclose(a, b, abs_tol=1e-9) for a, b in rest)


@given(poses)
def test_matrix_round_trip(pose: PlanePose) -> None:
    assert close(to_pose(pose_parameters(matrix(pose))), pose)


def test_positive_angle_is_clockwise() -> None:
    up = torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(matrix(PlanePose(0, 0, 90, 2)) @ up, up.new_tensor([2, 0, 1]))


@given(poses, st.sampled_from(WHOLES))
def test_parts_vote_for_their_whole(pose: PlanePose, whole: WholeName) -> None:
    votes = vote_parameters(place_parts(whole, pose), (whole,))
    assert votes.shape == (2, 1, 4)
    for vote in votes[:, 0]:
        assert close(to_pose(vote), pose)


def test_places_of_roof_and_sail() -> None:
    for whole in ("house", "boat"):
        assert PLACES[whole]["triangle"].y < PLACES[whole]["rectangle"].y


@given(poses)
def test_encoding_round_trip(pose: PlanePose) -> None:
    values = pose_parameters(matrix(pose))
    torch.testing.assert_close(decode_poses(encode_poses(values)), values)
    torch.testing.assert_close(encode_poses(values).norm(), torch.tensor(VOTE_LENGTH, dtype=torch.float64))


@given(poses, poses, st.floats(-3, 3), st.floats(-3, 3))
def test_agreement_depends_on_the_difference(one: PlanePose, other: PlanePose, x: float, y: float) -> None:
    a, b = pose_parameters(matrix(one)), pose_parameters(matrix(other))
    move = a.new_tensor([x, y, 0.3, 0.1])
    torch.testing.assert_close(encode_poses(a + move) @ encode_poses(b + move), encode_poses(a) @ encode_poses(b))
    assert float(encode_poses(a) @ encode_poses(b)) <= VOTE_LENGTH**2 + 1e-9


@pytest.mark.parametrize("move", [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0.3, 0], [0, 0, 0, 0.2]])
def test_agreement_falls_with_distance(move: list[float]) -> None:
    zero = torch.zeros(4, dtype=torch.float64)
    step = torch.tensor(move, dtype=torch.float64)
    products = [float(encode_poses(zero) @ encode_poses(k * step)) for k in range(4)]
    assert products == sorted(products, reverse=True)
    assert products[3] < 0.85 * products[0]


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("name", "winner", "loser"), [("house", 0, 1), ("boat", 1, 0)])
def test_complete_whole_is_active(routing: ToyRouting, name: str, winner: int, loser: int) -> None:
    found = make_scene("house" if name == "house" else "boat")
    trace = route(found.parts, found.wholes, routing, 8)
    last = trace.activations[-1, 0]
    assert last[winner] > 0.85
    assert last[winner] > last[loser] + 0.2
    true = PlanePose(-2.4, 0.1, -8, 1.4) if name == "house" else PlanePose(2.4, 0.3, 10, 1.3)
    assert close(to_pose(decode_poses(trace.poses[-1, 0, winner])), true)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_outlier_loses_coupling(routing: ToyRouting) -> None:
    found = make_scene("stray")
    trace = route(found.parts, found.wholes, routing, 8)
    to_house = trace.coupling[:, 0, :, 0]  # [R, I]
    assert torch.all(to_house[1:, 2] < to_house[0, 2])
    assert to_house[-1, 2] < 0.05
    assert torch.all(to_house[-1, :2] > 0.9)


def test_moved_part_deactivates_the_whole() -> None:
    roof, walls = make_scene("house").parts
    wholes = WHOLES[:2]
    moved = Part("triangle", roof.pose._replace(x=roof.pose.x + 4))
    assert route([roof, walls], wholes, "em", 8).activations[-1, 0, 0] > 0.9
    assert route([moved, walls], wholes, "em", 8).activations[-1, 0].max() < 0.1


@pytest.mark.parametrize("routing", ROUTINGS)
def test_two_wholes(routing: ToyRouting) -> None:
    found = make_scene("both")
    trace = route(found.parts, found.wholes, routing, 8)
    assert trace.coupling[-1, 0].argmax(dim=-1).tolist() == [0, 0, 1, 1]
    assert trace.coupling[-1, 0].amax(dim=-1).min() > 0.8
    assert trace.activations[-1, 0].min() > 0.85


def test_explaining_away() -> None:
    found = make_scene("upside-down")
    trace = route(found.parts, found.wholes, "em", 8)
    # Walls and sail fit it exactly, and after one iteration it has most of their coupling.
    votes = vote_parameters(found.parts, found.wholes)
    torch.testing.assert_close(encode_poses(votes[1, 2]), encode_poses(votes[2, 2]))
    assert trace.coupling[1, 0, 1:3, 2].min() > 0.7
    assert trace.activations[1:, 0].argmax(dim=-1).unique().tolist() in ([1], [0, 1])
    # The boat gets its sail back in the next iteration, the house its walls in the fourth.
    assert trace.coupling[1:, 0, 2].argmax(dim=-1).tolist() == [2, *[1] * 6]
    assert trace.coupling[1:, 0, 1].argmax(dim=-1).tolist() == [2, 2, *[0] * 5]
    # It leaves roof and hull alone; house and boat explain all four.
    assert trace.activations[-1, 0, :2].min() > 0.95
    assert trace.activations[-1, 0, 2] < 0.01
    assert trace.coupling[-1, 0].argmax(dim=-1).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("routing", ["dynamic", "kmeans"])
def test_other_routings_do_not_explain_away(routing: ToyRouting) -> None:
    found = make_scene("upside-down")
    assert route(found.parts, found.wholes, routing, 20).activations[-1, 0, 2] > 0.8


def test_explaining_away_in_the_long_run() -> None:
    found = make_scene("upside-down")
    dynamic, kmeans = (route(found.parts, found.wholes, routing, 400) for routing in ("dynamic", "kmeans"))
    assert dynamic.activations[:300, 0, 2].min() > 0.5
    assert dynamic.activations[-1, 0, 2] < 0.05
    assert kmeans.activations[:, 0, 2].min() > 0.8


@pytest.mark.parametrize("seed", range(20))
def test_em_rejects_random_parts(seed: int) -> None:
    found = make_scene("random", seed)
    assert route(found.parts, found.wholes, "em", 8).activations[-1, 0].max() < 0.5


@settings(max_examples=15, deadline=None)
@given(poses, st.floats(-2, 2), st.floats(-2, 2), st.floats(-90, 90))
def test_equivariance(pose: PlanePose, x: float, y: float, turn: float) -> None:
    # Equivariance of the pose, invariance of the activation; inside the plane, where positions do not come round.
    pose = pose._replace(x=pose.x / 2, y=pose.y / 2)
    before = route(place_parts("house", pose), WHOLES[:2], "em", 5)
    goal = PlanePose(pose.x + x, pose.y + y, pose.angle + turn, pose.size)
    after = route(place_parts("house", goal), WHOLES[:2], "em", 5)
    # Not to the last digit: the votes for the other whole, with which it competes, are turned about the plane's axes.
    torch.testing.assert_close(after.activations[-1, 0, 0], before.activations[-1, 0, 0], atol=0.01, rtol=0)
    assert close(to_pose(decode_poses(after.poses[-1, 0, 0])), goal)
