"""Geometry of the toy: two kinds of parts, the wholes they belong to, and their votes.

The plane reaches from -6 to 6 and from -4 to 4. The y axis points down, as on a screen, so that a positive angle turns
clockwise. The parameters of a pose are [x, y, angle in radians, logarithm of the size].
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps import ops
from torchcaps.types import Trace

PartKind = Literal["triangle", "rectangle"]
WholeName = Literal["house", "boat", "upside-down house"]
ToyRouting = Literal["em", "dynamic", "kmeans"]

PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
WHOLES: tuple[WholeName, ...] = get_args(WholeName)

# Half width and half height of the plane.
PLANE = (6.0, 4.0)
# Period of each pose parameter in the encoding; that of the position is larger than the plane.
PERIOD = torch.tensor([16.0, 16.0, 2 * math.pi, math.log(64)], dtype=torch.float64)  # [4]
HARMONICS = 4
# Length of a vote: two equal votes give a parent of length 0.91, one alone 0.72.
VOTE_LENGTH = 1.6

VARIANCE_FLOOR = 0.05
# Nats by which a part in agreement lowers the cost of a whole; a whole costs as much as 1.5 parts.
PART_GAIN = 3.0


class PlanePose(NamedTuple):
    """Position, angle (in degrees) and size in the plane."""

    x: float
    y: float
    angle: float
    size: float


class Part(NamedTuple):
    """A triangle or a rectangle with its pose."""

    kind: PartKind
    pose: PlanePose


# Pose of each part in the frame of each whole. A rectangle has the same outline upside down: the third whole uses that.
PLACES: dict[WholeName, dict[PartKind, PlanePose]] = {
    "house": {"triangle": PlanePose(0, -0.5, 0, 1), "rectangle": PlanePose(0, 0.55, 0, 1)},
    "boat": {"triangle": PlanePose(-0.3, -0.7, -90, 0.9), "rectangle": PlanePose(0, 0.9, 0, 1)},
    "upside-down house": {"triangle": PlanePose(0, -0.5, 0, 1), "rectangle": PlanePose(0, 0.55, 180, 1)},
}


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
        A triangle and a rectangle.

    Example:
        >>> [part.kind for part in place_parts("house", PlanePose(0, 0, 0, 1))]
        ['triangle', 'rectangle']
    """
    places = PLACES[whole]
    return [Part(kind, to_pose(pose_parameters(matrix(pose) @ matrix(places[kind])))) for kind in PART_KINDS]


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
    weight = {kind: torch.stack([matrix(PLACES[whole][kind]).inverse() for whole in wholes]) for kind in PART_KINDS}
    return pose_parameters(torch.stack([matrix(part.pose) @ weight[part.kind] for part in parts]))  # [I, J, 4]


def encode_poses(parameters: Tensor) -> Tensor:
    """Encode poses as vectors whose dot product measures their similarity.

    Each parameter x becomes cos and sin of 2 pi k x / period for k = 1 to 4. Two poses that differ by d have the dot
    product VOTE_LENGTH^2 times the mean of cos(2 pi k d / period), wherever in the plane they are: VOTE_LENGTH^2 for
    equal poses and less for all others.

    Args:
        parameters: x, y, angle in radians and logarithm of the size.

    Shape:
        parameters: [..., 4]; returns [..., 32].

    Returns:
        Vectors of length VOTE_LENGTH.
    """
    k = torch.arange(1, HARMONICS + 1, dtype=parameters.dtype)  # [K]
    phase = (2 * math.pi * parameters / PERIOD).unsqueeze(-1) * k  # [..., 4, K]
    waves = torch.stack([phase.cos(), phase.sin()], dim=-1)  # [..., 4, K, 2]
    return VOTE_LENGTH / math.sqrt(4 * HARMONICS) * waves.flatten(-3)  # [..., 4*K*2]


def decode_poses(vectors: Tensor) -> Tensor:
    """Pose parameters of encoded poses, from the harmonics with k = 1.

    Args:
        vectors: Encoded poses of any length.

    Shape:
        vectors: [..., 32]; returns [..., 4].

    Returns:
        x, y, angle in radians and logarithm of the size.

    Example:
        >>> parameters = torch.tensor([1.0, -2.0, 0.5, 0.1], dtype=torch.float64)
        >>> torch.allclose(decode_poses(encode_poses(parameters)), parameters)
        True
    """
    waves = vectors.unflatten(-1, (4, HARMONICS, 2))[..., 0, :]  # [..., 4, 2]
    return waves[..., 1].atan2(waves[..., 0]) * PERIOD / (2 * math.pi)  # [..., 4]


def inverse_temp(iteration: int) -> float:
    """Inverse temperature of EM in an iteration: 0.5, 1, 1.5, ..., slow enough to watch.

    Args:
        iteration: Number of the iteration, from 0.

    Returns:
        The inverse temperature.
    """
    return 0.5 * (iteration + 1)


def route(parts: list[Part], wholes: tuple[WholeName, ...], routing: ToyRouting, iters: int) -> Trace:
    """Route the votes of the parts to the wholes.

    Args:
        parts: The parts.
        wholes: Names of the wholes.
        routing: Name of the routing algorithm.
        iters: Number of iterations.

    Returns:
        Every iteration, with votes [1, I, J, 32].
    """
    votes = encode_poses(vote_parameters(parts, wholes)).unsqueeze(0)  # [1, I, J, D]
    if routing == "dynamic":
        return ops.trace("dynamic", votes, iters=iters)
    if routing == "kmeans":
        return ops.trace("kmeans", votes, iters=iters, inverse_temp=3.0)
    size, count = votes.shape[-1], len(wholes)
    # Equal votes have the variance VARIANCE_FLOOR: with this beta_u each of them lowers the cost by PART_GAIN.
    beta_u = votes.new_full((count,), -PART_GAIN / size - 0.5 * math.log(VARIANCE_FLOOR))  # [J]
    beta_a = votes.new_full((count,), -1.5 * PART_GAIN)  # [J]
    present = votes.new_ones(1, len(parts))  # [1, I]
    options = {"iters": iters, "inverse_temp": inverse_temp, "variance_floor": VARIANCE_FLOOR}
    return ops.trace("em", votes, present, beta_u=beta_u, beta_a=beta_a, **options)
