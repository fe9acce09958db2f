from __future__ import annotations

from typing import get_args

import pytest

from torchcaps.playground.scenes import Name, scene
from torchcaps.playground.wholes import WHOLES


@pytest.mark.parametrize("name", get_args(Name))
@pytest.mark.parametrize("seed", range(5))
def test_every_scene_lies_inside_the_plane(name: Name, seed: int) -> None:
    found = scene(name, seed)
    assert len(found.parts) >= 2
    for _, pose in found.parts:
        assert abs(pose.x) <= 5
        assert abs(pose.y) <= 3.5
        assert abs(pose.angle) <= 180
        assert 0.5 <= pose.size <= 2


def test_only_the_random_scene_follows_the_seed() -> None:
    for name in get_args(Name):
        assert (scene(name, 1) == scene(name, 2)) == (name != "random")
    assert scene("random", 3) == scene("random", 3)


def test_the_third_whole_is_looked_for_where_it_is_to_be_seen() -> None:
    assert {name for name in get_args(Name) if scene(name).wholes == WHOLES} == {"upside-down"}
