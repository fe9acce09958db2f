from __future__ import annotations

from typing import get_args

import pytest

from torchcaps.playground.toy_geometry import wholes_of
from torchcaps.playground.toy_scenes import SceneName, make_scene


@pytest.mark.parametrize("name", get_args(SceneName))
@pytest.mark.parametrize("seed", range(5))
def test_scenes_are_inside_the_plane(name: SceneName, seed: int) -> None:
    found = make_scene(name, seed)
    assert len(found.parts) >= 2
    for _, pose in found.parts:
        assert abs(pose.x) <= 5
        assert abs(pose.y) <= 3.5
        assert abs(pose.angle) <= 180
        assert 0.5 <= pose.size <= 2


def test_random_scene_follows_the_seed() -> None:
    for name in get_args(SceneName):
        assert (make_scene(name, 1) == make_scene(name, 2)) == (name != "random")
    assert make_scene("random", 3) == make_scene("random", 3)


def test_upside_down_house_is_in_one_scene() -> None:
    assert {name for name in get_args(SceneName) if make_scene(name).upside_down} == {"upside-down"}


@pytest.mark.parametrize("name", get_args(SceneName))
def test_parts_of_a_scene_have_common_wholes(name: SceneName) -> None:
    assert wholes_of({part.kind for part in make_scene(name).parts})
