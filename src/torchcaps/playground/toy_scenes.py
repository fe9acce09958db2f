"""Scenes of the toy: parts, and the wholes to look for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from torchcaps.playground.toy_geometry import (
    PLACES,
    Part,
    PartKind,
    PlanePose,
    matrix,
    place_parts,
    pose_parameters,
    to_pose,
)

SceneName = Literal[
    "house", "boat", "both", "stray", "crowded", "two houses", "upside-down", "face", "picasso", "random"
]
SCENES: tuple[SceneName, ...] = get_args(SceneName)


class Scene(NamedTuple):
    """Parts, and whether the upside-down house is one of the wholes to look for among them."""

    parts: list[Part]
    upside_down: bool = False


def upside_down_scene() -> Scene:
    """A house, and a boat on its side with its sail below the walls of the house.

    Walls and sail also form the roof and the walls of a house upside down. It explains two of its four parts; the house
    and the boat together explain all eight.
    """
    house = place_parts("house", PlanePose(0.6, -1.6, 0, 1.25))
    walls = matrix(house[1].pose)
    fallen = walls @ matrix(PLACES["upside-down house"]["rectangle"]).inverse()
    sail = fallen @ matrix(PLACES["upside-down house"]["triangle"])
    boat = sail @ matrix(PLACES["boat"]["triangle"]).inverse()
    return Scene(house + place_parts("boat", to_pose(pose_parameters(boat))), upside_down=True)


def picasso_scene() -> Scene:
    """The parts of a face, all there, in wrong places and at wrong angles."""
    poses: dict[PartKind, PlanePose] = {
        "left eye": PlanePose(1.9, 1.6, 40, 1.5),
        "right eye": PlanePose(-1.6, -0.2, -75, 1.5),
        "nose": PlanePose(0.9, -1.9, 150, 1.5),
        "mouth": PlanePose(-1.2, 2.0, 65, 1.5),
    }
    return Scene([Part(kind, pose) for kind, pose in poses.items()])


def crowded_scene() -> Scene:
    """A house and a boat that overlap, among parts that belong to neither."""
    house, boat = (
        place_parts("house", PlanePose(-0.9, -0.4, -14, 1.35)),
        place_parts("boat", PlanePose(1.3, 0.6, 9, 1.3)),
    )
    strays: list[tuple[PartKind, PlanePose]] = [
        ("triangle", PlanePose(-4.4, 1.6, 60, 1.1)),
        ("rectangle", PlanePose(4.3, -2.3, -40, 0.9)),
        ("window", PlanePose(-3.4, -2.4, 20, 1.3)),
    ]
    return Scene([*house, *boat, *(Part(kind, pose) for kind, pose in strays)])


def random_scene(seed: int) -> Scene:
    """One part of each kind of a house and another triangle and rectangle, with random poses.

    Args:
        seed: Seed of the poses.

    Returns:
        The scene.
    """
    rng = random.Random(seed)

    def random_pose() -> PlanePose:
        return PlanePose(rng.uniform(-4.5, 4.5), rng.uniform(-2.8, 2.8), rng.uniform(-180, 180), rng.uniform(0.8, 1.4))

    kinds: tuple[PartKind, ...] = ("triangle", "rectangle", "door", "window", "triangle", "rectangle")
    return Scene([Part(kind, random_pose()) for kind in kinds])


def make_scene(name: SceneName, seed: int = 0) -> Scene:
    """Make a scene by name.

    Args:
        name: Name of the scene.
        seed: Seed of the scene "random"; the others ignore it.

    Returns:
        The scene.

    Example:
        >>> len(make_scene("both").parts)
        8
    """
    if name == "random":
        return random_scene(seed)
    house, boat = (
        place_parts("house", PlanePose(-2.5, -0.2, -8, 1.4)),
        place_parts("boat", PlanePose(2.4, -0.2, 8, 1.3)),
    )
    scenes: dict[SceneName, Callable[[], Scene]] = {
        "house": lambda: Scene(house),
        "boat": lambda: Scene(boat),
        "both": lambda: Scene(house + boat),
        "stray": lambda: Scene([*house, Part("triangle", PlanePose(3.0, 1.2, 55, 1.1))]),
        "crowded": crowded_scene,
        "two houses": lambda: Scene(house + place_parts("house", PlanePose(2.6, 0.1, 10, 1.25))),
        "upside-down": upside_down_scene,
        "face": lambda: Scene(place_parts("face", PlanePose(0, -0.1, 6, 1.6))),
        "picasso": picasso_scene,
    }
    return scenes[name]()
