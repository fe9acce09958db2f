"""The panel The toy: parts in a plane, their votes for wholes, and every number of the routing."""

from __future__ import annotations

from typing import Annotated

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.playground.images import RequestModel
from torchcaps.playground.toy_geometry import (
    PLACES,
    PLANE,
    Part,
    PartKind,
    PlanePose,
    WholeName,
    decode_poses,
    pooled_score,
    to_pose,
    vote_parameters,
    wholes_of,
)
from torchcaps.playground.toy_routing import DEFAULT_ITERS, ToyRouting, inverse_temp, route
from torchcaps.playground.toy_scenes import SceneName, make_scene

router = APIRouter()

MAX_PARTS, MAX_SEED = 12, 1_000_000
MIN_SIZE, MAX_SIZE = 0.5, 2.0


class ToyLimits(BaseModel):
    """Limits of the panel's requests.

    Attributes:
        x: Smallest and largest x.
        y: Smallest and largest y.
        size: Smallest and largest size.
        max_parts: Largest number of parts.
        max_seed: Largest seed of a random scene.
        iters: Number of iterations of each routing, by default.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    size: tuple[float, float]
    max_parts: int
    max_seed: int
    iters: dict[ToyRouting, int]


LIMITS = ToyLimits(
    x=(-PLANE[0], PLANE[0]),
    y=(-PLANE[1], PLANE[1]),
    size=(MIN_SIZE, MAX_SIZE),
    max_parts=MAX_PARTS,
    max_seed=MAX_SEED,
    iters=DEFAULT_ITERS,
)


class ToyPart(RequestModel):
    """A part on the page; the angle is in degrees, clockwise."""

    kind: PartKind
    x: float = Field(ge=-PLANE[0], le=PLANE[0], allow_inf_nan=False, strict=True)
    y: float = Field(ge=-PLANE[1], le=PLANE[1], allow_inf_nan=False, strict=True)
    angle: float = Field(ge=-360, le=360, allow_inf_nan=False, strict=True)
    size: float = Field(ge=MIN_SIZE, le=MAX_SIZE, allow_inf_nan=False, strict=True)


class ToyRequest(RequestModel):
    """Parts to route.

    Attributes:
        parts: The parts.
        routing: Name of the routing algorithm.
        iters: Number of iterations; that of the limits by default.
        upside_down: Whether the upside-down house is one of the wholes.
    """

    parts: Annotated[list[ToyPart], Field(min_length=1, max_length=MAX_PARTS)]
    routing: ToyRouting = "em"
    iters: Annotated[int, Field(ge=1, le=20, strict=True)] | None = None
    upside_down: bool = Field(default=False, strict=True)


class ToyPose(BaseModel):
    """A pose; the angle is in degrees, clockwise."""

    x: float
    y: float
    angle: float
    size: float


class ToyWhole(BaseModel):
    """A whole.

    Attributes:
        name: Name of the whole.
        places: Poses of its parts in its frame.
        pooled: Score of a detector with max-pooling, which ignores where the parts are.
    """

    name: WholeName
    places: dict[PartKind, ToyPose]
    pooled: float


class ToyIteration(BaseModel):
    """One iteration: [I, J] numbers of every part and whole, and the state of the J wholes."""

    inverse_temp: float | None
    coupling: list[list[float]]
    logits: list[list[float]]
    agreement: list[list[float]]
    poses: list[ToyPose]
    activations: list[float]


class ToyResponse(BaseModel):
    """The votes [I, J] as poses of the wholes, and every iteration of the routing.

    The coupling of a part sums to less than 1; the rest belongs to no whole.
    """

    wholes: list[ToyWhole]
    votes: list[list[ToyPose]]
    iterations: list[ToyIteration]


class SceneRequest(RequestModel):
    """A scene by name; the seed is for the scene "random"."""

    name: SceneName
    seed: int = Field(default=0, ge=0, le=MAX_SEED, strict=True)


class SceneResponse(BaseModel):
    """The parts of a scene, and whether the upside-down house is one of its wholes."""

    parts: list[ToyPart]
    upside_down: bool


@router.post("/route")
def route_parts(body: ToyRequest) -> ToyResponse:
    """Route the votes of the parts to the wholes."""
    parts = [Part(part.kind, PlanePose(part.x, part.y, part.angle, part.size)) for part in body.parts]
    wholes = wholes_of({part.kind for part in parts}, upside_down=body.upside_down)
    if not wholes:
        raise ConfigError(f"parts: expected parts of one whole, got {', '.join(sorted({part.kind for part in parts}))}")
    trace = route(parts, wholes, body.routing, body.iters or DEFAULT_ITERS[body.routing])
    agreement = torch.einsum("ijd,rjd->rij", trace.votes[0], trace.poses[:, 0])  # [R, I, J]
    poses = decode_poses(trace.poses[:, 0])  # [R, J, 4]
    coupling, logits = round_numbers(trace.coupling), round_numbers(trace.logits)
    activations = round_numbers(trace.activations)
    return ToyResponse(
        wholes=[
            ToyWhole(
                name=name,
                places={kind: _round_pose(pose) for kind, pose in PLACES[name].items()},
                pooled=pooled_score(parts, name),
            )
            for name in wholes
        ],
        votes=[[_round_pose(to_pose(vote)) for vote in row] for row in vote_parameters(parts, wholes)],
        iterations=[
            ToyIteration(
                inverse_temp=inverse_temp(r) if body.routing == "em" else None,
                coupling=coupling[r][0],
                logits=logits[r][0],
                agreement=round_numbers(agreement[r]),
                poses=[_round_pose(to_pose(pose)) for pose in poses[r]],
                activations=activations[r][0],
            )
            for r in range(trace.iters)
        ],
    )


@router.post("/scene")
def load_scene(body: SceneRequest) -> SceneResponse:
    """The parts of a scene."""
    scene = make_scene(body.name, body.seed)
    parts = [ToyPart(kind=part.kind, **_round_pose(part.pose).model_dump()) for part in scene.parts]
    return SceneResponse(parts=parts, upside_down=scene.upside_down)


def round_numbers(numbers: Tensor) -> list:
    """Convert a tensor to nested lists with four decimals."""
    return numbers.round(decimals=4).tolist()


def _round_pose(pose: PlanePose) -> ToyPose:
    return ToyPose(x=round(pose.x, 4), y=round(pose.y, 4), angle=round(pose.angle, 3), size=round(pose.size, 4))
