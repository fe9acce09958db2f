from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.playground.toy_geometry import (
    PLACES,
    TOLERANCE,
    Part,
    PlanePose,
    WholeName,
    decode_poses,
    encode_poses,
    matrix,
    place_parts,
    pooled_score,
    pose_parameters,
    to_pose,
    vote_parameters,
    wholes_of,
)
from torchcaps.playground.toy_scenes import make_scene

WHOLES: tuple[WholeName, ...] = tuple(PLACES)
poses = st.builds(PlanePose, st.floats(-6, 6), st.floats(-4, 4), st.floats(-179, 179), st.floats(0.5, 2))


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
    assert votes.shape == (4, 1, 4)
    for vote in votes[:, 0]:
        assert close(to_pose(vote), pose)


def test_places_of_roof_and_sail() -> None:
    for whole in ("house", "boat"):
        assert PLACES[whole]["triangle"].y < PLACES[whole]["rectangle"].y


@given(poses)
def test_encoding_round_trip(pose: PlanePose) -> None:
    values = pose_parameters(matrix(pose))
    torch.testing.assert_close(decode_poses(encode_poses(values)), values)
    torch.testing.assert_close(encode_poses(values).norm(), torch.tensor(1.0, dtype=torch.float64))


@given(poses, poses, st.floats(-3, 3), st.floats(-3, 3))
def test_agreement_depends_on_the_difference(one: PlanePose, other: PlanePose, x: float, y: float) -> None:
    a, b = pose_parameters(matrix(one)), pose_parameters(matrix(other))
    move = a.new_tensor([x, y, 0.3, 0.1])
    torch.testing.assert_close(encode_poses(a + move) @ encode_poses(b + move), encode_poses(a) @ encode_poses(b))
    assert float(encode_poses(a) @ encode_poses(b)) <= 1 + 1e-9


@pytest.mark.parametrize("parameter", range(4))
def test_agreement_is_lost_if_one_parameter_differs(parameter: int) -> None:
    zero, step = torch.zeros(2, 4, dtype=torch.float64)
    step[parameter] = TOLERANCE[parameter]
    near, far = (float(encode_poses(zero) @ encode_poses(factor * step)) for factor in (0.5, 3.0))
    assert near > 0.8
    assert abs(far) < 0.25


def test_wholes_of_mixed_parts() -> None:
    assert wholes_of({"triangle"}, upside_down=True) == ("house", "boat", "upside-down house")
    assert wholes_of({"nose", "mouth"}) == ("face",)
    assert wholes_of({"nose", "triangle"}) == ()


def test_pooled_score_ignores_poses() -> None:
    assert pooled_score(make_scene("picasso").parts, "face") == pooled_score(make_scene("face").parts, "face") == 1
    assert pooled_score(make_scene("face").parts, "house") == 0
    assert pooled_score([Part("door", PlanePose(0, 0, 0, 1))], "house") == 0.25
