"""Scenes of the toy: triangles and rectangles, and the wholes to look for."""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from torchcaps.playground.toy_geometry import (
    PLACES,
    WHOLES,
    Part,
    PlanePose,
    WholeName,
    matrix,
    place_parts,
    pose_parameters,
    to_pose,
)

SceneName = Literal["house", "boat", "both", "stray", "upside-down", "random"]


class Scene(NamedTuple):
    """Parts, and the wholes to look for among them."""

    parts: list[Part]
    wholes: tuple[WholeName, ...] = WHOLES[:2]


def upside_down_scene() -> Scene:
    """A house, and a boat on its side with its sail below the walls of the house.

    Walls and sail also form a third whole exactly, a house upside down. It explains two of the four parts; the house
    and the boat together explain all four.
    """
    house = place_parts("house", PlanePose(0.6, -1.3, 0, 1.35))
    walls = matrix(house[1].pose)
    fallen = walls @ matrix(PLACES["upside-down house"]["rectangle"]).inverse()
    sail = fallen @ matrix(PLACES["upside-down house"]["triangle"])
    boat = sail @ matrix(PLACES["boat"]["triangle"]).inverse()
    return Scene(house + place_parts("boat", to_pose(pose_parameters(boat))), WHOLES)


def random_scene(seed: int) -> Scene:
    """Two triangles and two rectangles with random poses.

    Args:
        seed: Seed of the poses.

    Returns:
        The scene.
    """
    rng = random.Random(seed)

    def random_pose() -> PlanePose:
        return PlanePose(rng.uniform(-4.5, 4.5), rng.uniform(-2.8, 2.8), rng.uniform(-180, 180), rng.uniform(0.8, 1.4))

    return Scene([Part(kind, random_pose()) for kind in ("triangle", "rectangle", "triangle", "rectangle")])


def make_scene(name: SceneName, seed: int = 0) -> Scene:
    """Make a scene by name.

    Args:
        name: Name of the scene.
        seed: Seed of the scene "random"; the others ignore it.

    Returns:
        The scene.

    Example:
        >>> len(make_scene("both").parts)
        4
    """
    if name == "upside-down":
        return upside_down_scene()
    if name == "random":
        return random_scene(seed)
    house, boat = place_parts("house", PlanePose(-2.4, 0.1, -8, 1.4)), place_parts("boat", PlanePose(2.4, 0.3, 10, 1.3))
    if name == "both":
        return Scene(house + boat)
    if name == "stray":
        return Scene([*house, Part("triangle", PlanePose(3.0, 1.2, 55, 1.1))])
    return Scene(house if name == "house" else boat)
