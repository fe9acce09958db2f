"""A world of two parts and two wholes: how a triangle and a rectangle vote for the house or the boat that they are of.

Lengths are in units of a plane that reaches from -6 to 6 and from -4 to 4, with y downwards as on a screen, so that a
positive angle turns clockwise. A pose is [x, y, angle in radians, logarithm of the size].
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps import ops
from torchcaps.types import Trace

Kind = Literal["triangle", "rectangle"]
Whole = Literal["house", "boat", "upside-down house"]
Routing = Literal["em", "dynamic", "kmeans"]

KINDS: tuple[Kind, ...] = get_args(Kind)
WHOLES: tuple[Whole, ...] = get_args(Whole)

# How far a number of a pose may go before it comes back to where it began. Positions come back beyond the plane.
PERIOD = torch.tensor([16.0, 16.0, 2 * math.pi, math.log(64)], dtype=torch.float64)  # [4]
HARMONICS = 4
# Two votes of this length that agree make a parent of length 0.91, and one alone 0.72.
LENGTH = 1.6

FLOOR = 0.05
# What one part is worth to a whole that it agrees with, in nats; a whole costs as much as one and a half parts.
WORTH = 3.0


class Pose(NamedTuple):
    """Where a thing is, how it is turned (in degrees) and how large it is."""

    x: float
    y: float
    angle: float
    size: float


class Part(NamedTuple):
    """A triangle or a rectangle, and its pose."""

    kind: Kind
    pose: Pose


# Where each part stands in the frame of each whole. A rectangle looks the same upside down; the third takes it so.
PLACES: dict[Whole, dict[Kind, Pose]] = {
    "house": {"triangle": Pose(0, -0.5, 0, 1), "rectangle": Pose(0, 0.55, 0, 1)},
    "boat": {"triangle": Pose(-0.3, -0.7, -90, 0.9), "rectangle": Pose(0, 0.9, 0, 1)},
    "upside-down house": {"triangle": Pose(0, -0.5, 0, 1), "rectangle": Pose(0, 0.55, 180, 1)},
}


def matrix(pose: Pose) -> Tensor:
    """A pose as a similarity of the plane, [3, 3]: it takes what is drawn about the origin to where it is."""
    turn = math.radians(pose.angle)
    cos, sin = pose.size * math.cos(turn), pose.size * math.sin(turn)
    return torch.tensor([[cos, -sin, pose.x], [sin, cos, pose.y], [0, 0, 1]], dtype=torch.float64)


def numbers(matrices: Tensor) -> Tensor:
    """The four numbers of poses, [..., 4], from their matrices [..., 3, 3]."""
    cos, sin = matrices[..., 0, 0], matrices[..., 1, 0]  # [...]
    return torch.stack([matrices[..., 0, 2], matrices[..., 1, 2], sin.atan2(cos), torch.hypot(cos, sin).log()], dim=-1)


def pose_of(values: Tensor) -> Pose:
    """Four numbers [4] as a pose."""
    x, y, turn, log_size = values.tolist()
    return Pose(x, y, math.degrees(turn), math.exp(log_size))


def place(whole: Whole, pose: Pose) -> list[Part]:
    """The parts of a whole that stands there: M_part = M_whole M_place.

    >>> [part.kind for part in place("house", Pose(0, 0, 0, 1))]
    ['triangle', 'rectangle']
    """
    places = PLACES[whole]
    return [Part(kind, pose_of(numbers(matrix(pose) @ matrix(places[kind])))) for kind in KINDS]


def vote_numbers(parts: list[Part], wholes: tuple[Whole, ...]) -> Tensor:
    """Which pose of each whole each part speaks for, [I, J, 4]: M_whole = M_part M_place^-1."""
    weight = {kind: torch.stack([matrix(PLACES[whole][kind]).inverse() for whole in wholes]) for kind in KINDS}
    return numbers(torch.stack([matrix(part.pose) @ weight[part.kind] for part in parts]))  # [I, J, 4]


def encode(values: Tensor) -> Tensor:
    """Poses [..., 4] as vectors [..., 32] whose product says how near two poses are.

    Each number is the hand of a clock, cos and sin of 2 pi k x / period, with finer clocks for k = 2, 3, 4. Two poses
    that differ by d then have the product LENGTH^2 times the mean of cos(2 pi k d / period): LENGTH^2 where they are
    the same, and much less where they are not, wherever in the plane they are.
    """
    k = torch.arange(1, HARMONICS + 1, dtype=values.dtype)  # [K]
    phase = (2 * math.pi * values / PERIOD).unsqueeze(-1) * k  # [..., 4, K]
    hands = torch.stack([phase.cos(), phase.sin()], dim=-1)  # [..., 4, K, 2]
    return LENGTH / math.sqrt(4 * HARMONICS) * hands.flatten(-3)  # [..., 4*K*2]


def decode(vectors: Tensor) -> Tensor:
    """The pose that a vector stands for, read from the coarse hands: [..., 32] gives [..., 4].

    >>> values = torch.tensor([1.0, -2.0, 0.5, 0.1], dtype=torch.float64)
    >>> torch.allclose(decode(encode(values)), values)
    True
    """
    hands = vectors.unflatten(-1, (4, HARMONICS, 2))[..., 0, :]  # [..., 4, 2]
    return hands[..., 1].atan2(hands[..., 0]) * PERIOD / (2 * math.pi)  # [..., 4]


def inverse_temp(iteration: int) -> float:
    """How EM's belief in its activations rises: 0.5, 1, 1.5, ..., slow enough to be watched."""
    return 0.5 * (iteration + 1)


def route(parts: list[Part], wholes: tuple[Whole, ...], routing: Routing, iters: int) -> Trace:
    """Let the parts vote, votes [1, I, J, 32], and keep every iteration of their routing to the wholes."""
    votes = encode(vote_numbers(parts, wholes)).unsqueeze(0)  # [1, I, J, D]
    if routing == "dynamic":
        return ops.trace("dynamic", votes, iters=iters)
    if routing == "kmeans":
        return ops.trace("kmeans", votes, iters=iters, inverse_temp=3.0)
    size, count = votes.shape[-1], len(wholes)
    # With these a part that agrees lowers the cost by WORTH: the deviation is then the root of the floor.
    beta_u = votes.new_full((count,), -WORTH / size - 0.5 * math.log(FLOOR))  # [J]
    beta_a = votes.new_full((count,), -1.5 * WORTH)  # [J]
    present = votes.new_ones(1, len(parts))  # [1, I]
    options = {"iters": iters, "inverse_temp": inverse_temp, "variance_floor": FLOOR}
    return ops.trace("em", votes, present, beta_u=beta_u, beta_a=beta_a, **options)
