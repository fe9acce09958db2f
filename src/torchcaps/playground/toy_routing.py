"""The routings of the toy: each has a place for parts that belong to no whole."""

from __future__ import annotations

import math
from typing import Literal

import torch

from torchcaps import ops
from torchcaps.playground.toy_geometry import Part, WholeName, encode_poses, vote_parameters
from torchcaps.types import Trace

ToyRouting = Literal["em", "dynamic"]

# Number of iterations after which a routing has decided.
DEFAULT_ITERS: dict[ToyRouting, int] = {"em": 8, "dynamic": 4}

# Dynamic routing: length of a vote, and the logit of every whole at the start. The leak has the logit 0, so that a part
# belongs to no whole until votes agree. In Sabour et al. 2017 the first logits are log priors.
VOTE_LENGTH = 2.0
PRIOR = -2.0
# EM: nats by which a part in agreement lowers the cost of a whole, what a whole costs in such parts, and how many nats
# below the logit of a perfect vote the logit of belonging to no whole lies.
VARIANCE_FLOOR = 1 / 30
PART_GAIN, WHOLE_COST = 4.0, 3.3
BACKGROUND_GAP = 14.0
FIRST_INVERSE_TEMP, MAX_DOUBLINGS = 0.03, 6


def inverse_temp(iteration: int) -> float:
    """Inverse temperature of EM in an iteration: doubled up to the seventh, so that clusters form first.

    Args:
        iteration: Number of the iteration, from 0.

    Returns:
        The inverse temperature.
    """
    return FIRST_INVERSE_TEMP * 2 ** min(iteration, MAX_DOUBLINGS)


def route(parts: list[Part], wholes: tuple[WholeName, ...], routing: ToyRouting, iters: int) -> Trace:
    """Route the votes of the parts to the wholes.

    The coupling of a part sums to less than 1: the rest belongs to no whole (`leaky` of dynamic routing, `background`
    of EM).

    Args:
        parts: The parts.
        wholes: Names of the wholes.
        routing: Name of the routing algorithm.
        iters: Number of iterations.

    Returns:
        Every iteration, with votes [1, I, J, D].
    """
    votes = encode_poses(vote_parameters(parts, wholes)).unsqueeze(0)  # [1, I, J, D]
    if routing == "dynamic":
        prior = torch.full_like(votes[..., 0], PRIOR)  # [1, I, J]
        return ops.trace("dynamic", VOTE_LENGTH * votes, prior, iters=iters, leaky=True)
    size, count = votes.shape[-1], len(wholes)
    # Equal votes have the variance VARIANCE_FLOOR: with this beta_u each of them lowers the cost by PART_GAIN.
    beta_u = votes.new_full((count,), -PART_GAIN / size - 0.5 * math.log(VARIANCE_FLOOR))  # [J]
    beta_a = votes.new_full((count,), -WHOLE_COST * PART_GAIN)  # [J]
    present = votes.new_ones(1, len(parts))  # [1, I]
    perfect = -0.5 * size * math.log(2 * math.pi * VARIANCE_FLOOR)
    return ops.trace(
        "em",
        votes,
        present,
        beta_u=beta_u,
        beta_a=beta_a,
        iters=iters,
        inverse_temp=inverse_temp,
        variance_floor=VARIANCE_FLOOR,
        background=perfect - BACKGROUND_GAP,
    )
