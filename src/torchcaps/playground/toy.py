"""The panel The toy: parts that are drawn and turned, their votes, and every number of the routing that follows."""

from __future__ import annotations

from typing import Annotated

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor

from torchcaps.playground import scenes
from torchcaps.playground.picture import Request
from torchcaps.playground.wholes import (
    PLACES,
    WHOLES,
    Kind,
    Part,
    Pose,
    Routing,
    Whole,
    decode,
    inverse_temp,
    pose_of,
    route,
    vote_numbers,
)

router = APIRouter()


class Piece(Request):
    """A part where the page has put it; the angle is in degrees, clockwise."""

    kind: Kind
    x: float = Field(ge=-6, le=6, allow_inf_nan=False)
    y: float = Field(ge=-4, le=4, allow_inf_nan=False)
    angle: float = Field(ge=-360, le=360, allow_inf_nan=False)
    size: float = Field(ge=0.5, le=2, allow_inf_nan=False)


class Look(Request):
    """Parts that are to vote, and how they are routed; `upside_down` looks for the third whole as well."""

    parts: Annotated[list[Piece], Field(min_length=1, max_length=12)]
    routing: Routing = "em"
    iters: int = Field(default=8, ge=1, le=20)
    upside_down: bool = False


class Stand(BaseModel):
    """A pose in numbers that are easy to read."""

    x: float
    y: float
    angle: float
    size: float


class Form(BaseModel):
    """A whole by name, and where its parts stand in its own frame: what is needed to draw it."""

    name: Whole
    places: dict[Kind, Stand]


class Iteration(BaseModel):
    """One iteration: [I, J] numbers of every part and whole, and what the J wholes came to."""

    inverse_temp: float | None
    coupling: list[list[float]]
    logits: list[list[float]]
    agreement: list[list[float]]
    poses: list[Stand]
    activations: list[float]


class Routed(BaseModel):
    """The votes [I, J] as poses of the wholes, and every iteration of the routing."""

    wholes: list[Form]
    votes: list[list[Stand]]
    iterations: list[Iteration]


class Wanted(Request):
    """A scene by name; the random one is made from the seed."""

    name: scenes.Name
    seed: int = Field(default=0, ge=0, le=1_000_000)


class Setting(BaseModel):
    """The parts of a scene, and whether the upside-down house is among the wholes to look for."""

    parts: list[Piece]
    upside_down: bool


@router.post("/route")
def look(asked: Look) -> Routed:
    """Let the parts vote for the wholes, and route."""
    parts = [Part(piece.kind, Pose(piece.x, piece.y, piece.angle, piece.size)) for piece in asked.parts]
    wholes = WHOLES if asked.upside_down else WHOLES[:2]
    trace = route(parts, wholes, asked.routing, asked.iters)
    # Larger is better: the product of a vote with the pose that the iteration came to.
    agreement = torch.einsum("ijd,rjd->rij", trace.votes[0], trace.poses[:, 0])  # [R, I, J]
    poses = decode(trace.poses[:, 0])  # [R, J, 4]
    coupling, logits, activations = rounded(trace.coupling), rounded(trace.logits), rounded(trace.activations)
    return Routed(
        wholes=[Form(name=name, places={kind: _stand(PLACES[name][kind]) for kind in PLACES[name]}) for name in wholes],
        votes=[[_stand(pose_of(vote)) for vote in row] for row in vote_numbers(parts, wholes)],
        iterations=[
            Iteration(
                inverse_temp=inverse_temp(r) if asked.routing == "em" else None,
                coupling=coupling[r][0],
                logits=logits[r][0],
                agreement=rounded(agreement[r]),
                poses=[_stand(pose_of(pose)) for pose in poses[r]],
                activations=activations[r][0],
            )
            for r in range(trace.iters)
        ],
    )


@router.post("/scene")
def setting(asked: Wanted) -> Setting:
    """The parts of a scene to begin with."""
    found = scenes.scene(asked.name, asked.seed)
    pieces = [Piece(kind=part.kind, **_stand(part.pose).model_dump()) for part in found.parts]
    return Setting(parts=pieces, upside_down=len(found.wholes) == len(WHOLES))


def rounded(numbers: Tensor) -> list:
    """A tensor as lists, with as many digits as a page can show."""
    return numbers.round(decimals=4).tolist()


def _stand(pose: Pose) -> Stand:
    return Stand(x=round(pose.x, 4), y=round(pose.y, 4), angle=round(pose.angle, 3), size=round(pose.size, 4))
