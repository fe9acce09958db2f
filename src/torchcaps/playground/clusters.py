"""The panel Clusters: points that are put into a plane, and how EM and k-means cluster them, iteration by iteration."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field

from torchcaps.ops.em import inverse_temps
from torchcaps.ops.em.reference import Covariance
from torchcaps.playground.picture import Request
from torchcaps.playground.points import Options, Preset, Start, cluster, ellipses, preset

router = APIRouter()

X = Annotated[float, Field(ge=-1.5, le=1.5, allow_inf_nan=False)]
Y = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Point = tuple[X, Y]

# As far as an answer still comes at once.
POINTS, CLUSTERS, ITERS = 400, 8, 40


class Look(Request):
    """Points to cluster, and how; what the chosen routing has no use for does nothing."""

    points: Annotated[list[Point], Field(min_length=1, max_length=POINTS)]
    routing: Literal["em", "kmeans"] = "em"
    clusters: int = Field(default=3, ge=1, le=CLUSTERS)
    iters: int = Field(default=20, ge=1, le=ITERS)
    start: Start = "spread"
    seed: int = Field(default=0, ge=0, le=1_000_000)
    covariance: Covariance = "diagonal"
    schedule: Literal["paper", "released", "linear", "constant"] = "paper"
    gain: float = Field(default=20, ge=0.1, le=500, allow_inf_nan=False)


class Iteration(BaseModel):
    """One iteration: mean, covariance (xx, xy, yy), activation and number of points of each cluster."""

    inverse_temp: float
    means: list[tuple[float, float]]
    covariances: list[tuple[float, float, float]]
    activations: list[float]
    mass: list[float]


class Clustered(BaseModel):
    """Every iteration; `responsibilities` are bytes in base64, [iterations, points, clusters], where 255 is all."""

    iterations: list[Iteration]
    responsibilities: str


class Wanted(Request):
    """Points of a known shape, made from the seed."""

    name: Preset
    seed: int = Field(default=0, ge=0, le=1_000_000)


class Points(BaseModel):
    """Points, and a number of clusters to begin with."""

    points: list[Point]
    clusters: int


@router.post("/cluster")
def look(asked: Look) -> Clustered:
    """Route the points to the clusters and keep every iteration."""
    points = torch.tensor(asked.points, dtype=torch.float64)  # [N, 2]
    schedule = 1.0 if asked.schedule == "constant" else asked.schedule
    options = Options(asked.clusters, asked.iters, asked.start, asked.seed, asked.covariance, schedule, asked.gain)
    with torch.inference_mode():
        trace = cluster(points, asked.routing, options)
    upright = asked.routing == "em" and asked.covariance == "diagonal"
    means, covariances = ellipses(trace, points, upright=upright)  # [R, J, 2], [R, J, 2, 2]
    coupling = trace.coupling[:, 0]  # [R, N, J]
    temps = inverse_temps(schedule, asked.iters) if asked.routing == "em" else (asked.gain,) * asked.iters
    share = coupling.mul(255).round().to(torch.uint8).contiguous().numpy().tobytes()
    # xx, xy and yy of each symmetric matrix.
    lists = [means, covariances.flatten(-2)[..., [0, 1, 3]], trace.activations[:, 0], coupling.sum(dim=1)]
    columns = [numbers.to(torch.float64).round(decimals=5).tolist() for numbers in lists]
    return Clustered(
        iterations=[
            Iteration(inverse_temp=temps[r], means=mean, covariances=covariance, activations=activation, mass=mass)
            for r, (mean, covariance, activation, mass) in enumerate(zip(*columns, strict=True))
        ],
        responsibilities=base64.b64encode(share).decode("ascii"),
    )


@router.post("/preset")
def known(asked: Wanted) -> Points:
    """Points to begin with."""
    counts: dict[Preset, int] = {"two blobs": 2, "three blobs and outliers": 3, "ring": 6, "stretched": 2}
    points = [(x, y) for x, y in preset(asked.name, asked.seed).round(decimals=4).tolist()]
    return Points(points=points, clusters=counts[asked.name])
