"""Geometry of the toy: kinds of parts, the wholes they belong to, and their votes.

The plane reaches from -6 to 6 and from -4 to 4. The y axis points down, as on a screen, so that a positive angle turns
clockwise. The parameters of a pose are [x, y, angle in radians, logarithm of the size].
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

PartKind = Literal["triangle", "rectangle", "door", "window", "left eye", "right eye", "nose", "mouth"]
WholeName = Literal["house", "boat", "upside-down house", "face"]

PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)

# Half width and half height of the plane.
PLANE = (6.0, 4.0)
# Two votes agree if they differ by less than this in x, y, angle and logarithm of the size.
TOLERANCE = torch.tensor([0.4, 0.4, 0.35, 0.25], dtype=torch.float64)  # [4]
WAVES = 128
# Period of each pose parameter in the slow waves, from which a pose is decoded; that of the position exceeds the plane.
PERIOD = torch.tensor([16.0, 16.0, 2 * math.pi, math.log(64)], dtype=torch.float64)  # [4]
# Share of the squared length of a vector that its slow waves have.
SLOW_SHARE = 0.04


class PlanePose(NamedTuple):
    """Position, angle (in degrees) and size in the plane."""

    x: float
    y: float
    angle: float
    size: float


class Part(NamedTuple):
    """A part with its pose."""

    kind: PartKind
    pose: PlanePose


# Pose of each part in the frame of each whole. A rectangle has the same outline upside down: the third whole uses that.
PLACES: dict[WholeName, dict[PartKind, PlanePose]] = {
    "house": {
        "triangle": PlanePose(0, -0.5, 0, 1),
        "rectangle": PlanePose(0, 0.55, 0, 1),
        "door": PlanePose(0.45, 0.72, 0, 1),
        "window": PlanePose(-0.4, 0.5, 0, 1),
    },
    "boat": {
        "triangle": PlanePose(-0.3, -0.7, -90, 0.9),
        "rectangle": PlanePose(0, 0.9, 0, 1),
        "door": PlanePose(0.55, 0.13, 0, 0.85),
        "window": PlanePose(-0.35, 0.9, 45, 0.9),
    },
    "upside-down house": {
        "triangle": PlanePose(0, -0.5, 0, 1),
        "rectangle": PlanePose(0, 0.55, 180, 1),
        "door": PlanePose(-0.45, 0.72, 0, 1),
        "window": PlanePose(0.4, 0.5, 0, 1),
    },
    "face": {
        "left eye": PlanePose(-0.75, -0.55, 0, 1),
        "right eye": PlanePose(0.75, -0.55, 0, 1),
        "nose": PlanePose(0, 0.1, 0, 1),
        "mouth": PlanePose(0, 0.95, 0, 1),
    },
}


def wholes_of(kinds: set[PartKind], *, upside_down: bool = False) -> tuple[WholeName, ...]:
    """Names of the wholes that parts can belong to.

    Args:
        kinds: Kinds of the parts.
        upside_down: Whether the upside-down house is one of them.

    Returns:
        The wholes that every one of the kinds belongs to; none if the kinds belong to different wholes.

    Example:
        >>> wholes_of({"triangle", "door"}), wholes_of({"triangle", "nose"})
        (('house', 'boat'), ())
    """
    wholes: list[WholeName] = [whole for whole, places in PLACES.items() if kinds <= set(places)]
    return tuple(whole for whole in wholes if upside_down or whole != "upside-down house")


def pooled_score(parts: list[Part], whole: WholeName) -> float:
    """Score of a detector with max-pooling: the share of a whole's kinds of parts that occur, at any pose.

    For every kind such a detector keeps the largest response over all places, which is 1 if there is such a part.

    Args:
        parts: The parts.
        whole: Name of the whole.

    Returns:
        A number from 0 to 1.

    Example:
        >>> pooled_score(place_parts("face", PlanePose(0, 0, 0, 1))[:3], "face")
        0.75
    """
    kinds = {part.kind for part in parts}
    return sum(kind in kinds for kind in PLACES[whole]) / len(PLACES[whole])


def matrix(pose: PlanePose) -> Tensor:
    """The similarity transformation of a pose, from the frame of a part or whole to the plane.

    Args:
        pose: The pose.

    Shape:
        returns [3, 3].

    Returns:
        The matrix in homogeneous coordinates.
    """
    angle = math.radians(pose.angle)
    cos, sin = pose.size * math.cos(angle), pose.size * math.sin(angle)
    return torch.tensor([[cos, -sin, pose.x], [sin, cos, pose.y], [0, 0, 1]], dtype=torch.float64)


def pose_parameters(matrices: Tensor) -> Tensor:
    """Pose parameters of similarity transformations: the inverse of `matrix`.

    Args:
        matrices: Matrices in homogeneous coordinates.

    Shape:
        matrices: [..., 3, 3]; returns [..., 4].

    Returns:
        x, y, angle in radians and logarithm of the size.
    """
    cos, sin = matrices[..., 0, 0], matrices[..., 1, 0]  # [...]
    return torch.stack([matrices[..., 0, 2], matrices[..., 1, 2], sin.atan2(cos), torch.hypot(cos, sin).log()], dim=-1)


def to_pose(parameters: Tensor) -> PlanePose:
    """Convert pose parameters to a pose.

    Args:
        parameters: x, y, angle in radians and logarithm of the size.

    Shape:
        parameters: [4].

    Returns:
        The pose, its angle in degrees.
    """
    x, y, angle, log_size = parameters.tolist()
    return PlanePose(x, y, math.degrees(angle), math.exp(log_size))


def place_parts(whole: WholeName, pose: PlanePose) -> list[Part]:
    """The parts of a whole: M_part = M_whole M_place.

    Args:
        whole: Name of the whole.
        pose: Its pose in the plane.

    Returns:
        One part of each kind.

    Example:
        >>> [part.kind for part in place_parts("house", PlanePose(0, 0, 0, 1))]
        ['triangle', 'rectangle', 'door', 'window']
    """
    return [Part(kind, to_pose(pose_parameters(matrix(pose) @ matrix(place)))) for kind, place in PLACES[whole].items()]


def vote_parameters(parts: list[Part], wholes: tuple[WholeName, ...]) -> Tensor:
    """Votes of all parts for all wholes: M_whole = M_part M_place^-1.

    Args:
        parts: The parts.
        wholes: Names of the wholes.

    Shape:
        returns [I, J, 4].

    Returns:
        Pose parameters of each vote.
    """
    kinds: set[PartKind] = {part.kind for part in parts}
    weight = {kind: torch.stack([matrix(PLACES[whole][kind]).inverse() for whole in wholes]) for kind in kinds}
    return pose_parameters(torch.stack([matrix(part.pose) @ weight[part.kind] for part in parts]))  # [I, J, 4]


def _frequencies() -> Tensor:
    """Random frequencies [WAVES, 4] whose mean wave is a Gaussian of width TOLERANCE; whole numbers for the angle."""
    normal = torch.randn(WAVES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # [WAVES, 4]
    frequencies = normal / TOLERANCE
    frequencies[:, 2] = frequencies[:, 2].round()
    return frequencies


FREQUENCIES = _frequencies()


def encode_poses(parameters: Tensor) -> Tensor:
    """Encode poses as unit vectors whose dot product measures their similarity.

    The dot product is about exp(-d^2 / 2), where d is the difference of two poses in units of TOLERANCE: 1 for equal
    poses, and about 0 if a single parameter differs much (random Fourier features, Rahimi and Recht 2007). A few slow
    waves of small amplitude make the code invertible.

    Args:
        parameters: x, y, angle in radians and logarithm of the size.

    Shape:
        parameters: [..., 4]; returns [..., 8 + 2 * WAVES].

    Returns:
        Vectors of length 1.
    """
    slow = _waves(2 * math.pi * parameters / PERIOD)  # [..., 8]
    fast = _waves(parameters @ FREQUENCIES.T)  # [..., 2 * WAVES]
    return torch.cat([math.sqrt(SLOW_SHARE) * slow, math.sqrt(1 - SLOW_SHARE) * fast], dim=-1)


def _waves(phase: Tensor) -> Tensor:
    """Cosine and sine of n phases [..., n] as a vector of length 1, [..., 2n]."""
    return torch.stack([phase.cos(), phase.sin()], dim=-1).flatten(-2) / math.sqrt(phase.shape[-1])


def decode_poses(vectors: Tensor) -> Tensor:
    """Pose parameters of encoded poses, from their slow waves.

    Args:
        vectors: Encoded poses of any length.

    Shape:
        vectors: [..., 8 + 2 * WAVES]; returns [..., 4].

    Returns:
        x, y, angle in radians and logarithm of the size.

    Example:
        >>> parameters = torch.tensor([1.0, -2.0, 0.5, 0.1], dtype=torch.float64)
        >>> torch.allclose(decode_poses(encode_poses(parameters)), parameters)
        True
    """
    waves = vectors[..., :8].unflatten(-1, (4, 2))  # [..., 4, 2]
    return waves[..., 1].atan2(waves[..., 0]) * PERIOD / (2 * math.pi)  # [..., 4]
