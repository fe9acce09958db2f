"""The panel Clusters: EM and k-means on points of a plane, iteration by iteration."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import torch
from fastapi import APIRouter
from pydantic import BaseModel, Field

from torchcaps.ops.em import inverse_temps
from torchcaps.ops.em.reference import Covariance
from torchcaps.playground.cluster_points import (
    PLANE,
    ClusterOptions,
    Initialization,
    PresetName,
    cluster,
    ellipses,
    make_preset,
)
from torchcaps.playground.images import RequestModel

router = APIRouter()

X = Annotated[float, Field(ge=-PLANE[0], le=PLANE[0], allow_inf_nan=False, strict=True)]
Y = Annotated[float, Field(ge=-PLANE[1], le=PLANE[1], allow_inf_nan=False, strict=True)]
Point = tuple[X, Y]

# With these limits a request takes some tens of milliseconds.
MAX_POINTS, MAX_CLUSTERS, MAX_ITERS = 400, 8, 40


class ClusterLimits(BaseModel):
    """Limits of the panel's requests.

    Attributes:
        x: Smallest and largest x.
        y: Smallest and largest y.
        max_points: Largest number of points.
        max_clusters: Largest number of clusters.
        max_iters: Largest number of iterations.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    max_points: int
    max_clusters: int
    max_iters: int


LIMITS = ClusterLimits(
    x=(-PLANE[0], PLANE[0]),
    y=(-PLANE[1], PLANE[1]),
    max_points=MAX_POINTS,
    max_clusters=MAX_CLUSTERS,
    max_iters=MAX_ITERS,
)


class ClusterRequest(RequestModel):
    """Points to cluster, and the options of the routing; options of the other routing are ignored.

    Attributes:
        points: The points.
        routing: Name of the routing algorithm.
        clusters: Number of clusters.
        iters: Number of iterations.
        start: Initial logits.
        seed: Seed of the initial logits.
        covariance: Covariance of EM.
        schedule: Inverse temperature of EM by iteration.
        gain: Inverse temperature of k-means.
    """

    points: Annotated[list[Point], Field(min_length=1, max_length=MAX_POINTS)]
    routing: Literal["em", "kmeans"] = "em"
    clusters: int = Field(default=3, ge=1, le=MAX_CLUSTERS, strict=True)
    iters: int = Field(default=20, ge=1, le=MAX_ITERS, strict=True)
    start: Initialization = "k-means++"
    seed: int = Field(default=0, ge=0, le=1_000_000, strict=True)
    covariance: Covariance = "diagonal"
    schedule: Literal["paper", "released", "linear", "constant"] = "paper"
    gain: float = Field(default=20, ge=0.1, le=500, allow_inf_nan=False, strict=True)


class ClusterIteration(BaseModel):
    """One iteration: mean, covariance (xx, xy, yy), activation and number of points of each cluster."""

    inverse_temp: float
    means: list[tuple[float, float]]
    covariances: list[tuple[float, float, float]]
    activations: list[float]
    mass: list[float]


class ClusterResponse(BaseModel):
    """Every iteration of a clustering.

    Attributes:
        iterations: Mean, covariance, activation and mass of each cluster.
        responsibilities: Bytes in base64, [iterations, points, clusters]; 255 is 1.
    """

    iterations: list[ClusterIteration]
    responsibilities: str


class PresetRequest(RequestModel):
    """A set of points by name and seed."""

    name: PresetName
    seed: int = Field(default=0, ge=0, le=1_000_000, strict=True)


class PresetResponse(BaseModel):
    """Points, and the number of their groups."""

    points: list[Point]
    clusters: int


@router.post("/cluster")
def cluster_points(body: ClusterRequest) -> ClusterResponse:
    """Route the points to the clusters."""
    points = torch.tensor(body.points, dtype=torch.float64)  # [N, 2]
    schedule = 1.0 if body.schedule == "constant" else body.schedule
    options = ClusterOptions(body.clusters, body.iters, body.start, body.seed, body.covariance, schedule, body.gain)
    with torch.inference_mode():
        trace = cluster(points, body.routing, options)
    diagonal = body.routing == "em" and body.covariance == "diagonal"
    means, covariances = ellipses(trace, points, diagonal=diagonal)  # [R, J, 2], [R, J, 2, 2]
    coupling = trace.coupling[:, 0]  # [R, N, J]
    temps = inverse_temps(schedule, body.iters) if body.routing == "em" else (body.gain,) * body.iters
    levels = coupling.mul(255).round().to(torch.uint8).contiguous().numpy().tobytes()
    # xx, xy and yy of each symmetric matrix.
    columns = [means, covariances.flatten(-2)[..., [0, 1, 3]], trace.activations[:, 0], coupling.sum(dim=1)]
    rounded = [numbers.to(torch.float64).round(decimals=5).tolist() for numbers in columns]
    return ClusterResponse(
        iterations=[
            ClusterIteration(
                inverse_temp=temps[r], means=mean, covariances=covariance, activations=activation, mass=mass
            )
            for r, (mean, covariance, activation, mass) in enumerate(zip(*rounded, strict=True))
        ],
        responsibilities=base64.b64encode(levels).decode("ascii"),
    )


@router.post("/preset")
def load_preset(body: PresetRequest) -> PresetResponse:
    """A set of points."""
    counts: dict[PresetName, int] = {"two blobs": 2, "three blobs and outliers": 3, "ring": 6, "stretched": 2}
    points = [(x, y) for x, y in make_preset(body.name, body.seed).round(decimals=4).tolist()]
    return PresetResponse(points=points, clusters=counts[body.name])
