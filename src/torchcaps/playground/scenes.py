"""Scenes of triangles and rectangles for the toy: what is there to be seen in each of them."""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from torchcaps.playground.wholes import PLACES, WHOLES, Part, Pose, Whole, matrix, numbers, place, pose_of

Name = Literal["house", "boat", "both", "stray", "upside-down", "random"]


class Scene(NamedTuple):
    """Parts, and the wholes that are looked for among them."""

    parts: list[Part]
    wholes: tuple[Whole, ...] = WHOLES[:2]


def upside_down() -> Scene:
    """A house, and a boat on its side whose sail hangs under the walls of the house.

    Walls and sail make a third whole that fits exactly, a house upside down. It explains two parts of four and leaves
    the roof and the hull alone; the house and the boat together explain all.
    """
    house = place("house", Pose(0.6, -1.3, 0, 1.35))
    walls = matrix(house[1].pose)
    fallen = walls @ matrix(PLACES["upside-down house"]["rectangle"]).inverse()
    sail = fallen @ matrix(PLACES["upside-down house"]["triangle"])
    boat = sail @ matrix(PLACES["boat"]["triangle"]).inverse()
    return Scene(house + place("boat", pose_of(numbers(boat))), WHOLES)


def scattered(seed: int) -> Scene:
    """Two triangles and two rectangles, anywhere and turned at random: the same for the same seed."""
    draw = random.Random(seed)

    def anywhere() -> Pose:
        return Pose(draw.uniform(-4.5, 4.5), draw.uniform(-2.8, 2.8), draw.uniform(-180, 180), draw.uniform(0.8, 1.4))

    return Scene([Part(kind, anywhere()) for kind in ("triangle", "rectangle", "triangle", "rectangle")])


def scene(name: Name, seed: int = 0) -> Scene:
    """The scene of that name; only the random one depends on the seed.

    >>> len(scene("both").parts)
    4
    """
    if name == "upside-down":
        return upside_down()
    if name == "random":
        return scattered(seed)
    house, boat = place("house", Pose(-2.4, 0.1, -8, 1.4)), place("boat", Pose(2.4, 0.3, 10, 1.3))
    if name == "both":
        return Scene(house + boat)
    if name == "stray":
        return Scene([*house, Part("triangle", Pose(3.0, 1.2, 55, 1.1))])
    return Scene(house if name == "house" else boat)
