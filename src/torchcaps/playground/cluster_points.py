"""Clustering of points by routing: every point is a child that casts the same vote for every parent.

The plane reaches from -1.5 to 1.5 and from -1 to 1.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchcaps import ops
from torchcaps.ops.em.reference import Covariance
from torchcaps.types import Trace

PresetName = Literal["two blobs", "three blobs and outliers", "ring", "stretched"]
Initialization = Literal["k-means++", "random", "uniform"]

# Half width and half height of the plane.
PLANE = (1.5, 1.0)
EDGE = torch.tensor(PLANE, dtype=torch.float64)  # [2]
SPHERE_RADIUS = 1.5
VARIANCE_FLOOR = 0.001
# The cost of a cluster is zero at a standard deviation of 0.35, and lower for tighter clusters.
BETA_U = -math.log(0.35)
BETA_A = -1.0


class ClusterOptions(NamedTuple):
    """Options of a clustering.

    Attributes:
        clusters: Number of clusters.
        iters: Number of iterations.
        start: Initial logits.
        seed: Seed of the initial logits.
        covariance: Covariance of EM.
        schedule: Inverse temperature of EM.
        gain: Inverse temperature of k-means.
    """

    clusters: int
    iters: int
    start: Initialization = "k-means++"
    seed: int = 0
    covariance: Covariance = "diagonal"
    schedule: str | float = "paper"
    gain: float = 20.0


def make_preset(name: PresetName, seed: int) -> Tensor:
    """Make a set of points by name.

    Args:
        name: Name of the set.
        seed: Seed of the points.

    Shape:
        returns [N, 2].

    Returns:
        Points inside the plane.

    Example:
        >>> make_preset("ring", 0).shape
        torch.Size([72, 2])
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(count: int) -> Tensor:
        return torch.randn(count, 2, generator=rng, dtype=torch.float64)  # [N, 2]

    def blob(count: int, x: float, y: float, width: float, height: float) -> Tensor:
        return torch.tensor([x, y]) + normal(count) * torch.tensor([width, height])  # [N, 2]

    if name == "two blobs":
        points = torch.cat([blob(40, -0.6, 0.1, 0.17, 0.17), blob(40, 0.6, -0.1, 0.17, 0.17)])
    elif name == "three blobs and outliers":
        blobs = [blob(28, -0.8, -0.35, 0.13, 0.13), blob(28, 0.75, -0.4, 0.13, 0.13), blob(28, 0.0, 0.5, 0.13, 0.13)]
        outliers = (2 * torch.rand(10, 2, generator=rng, dtype=torch.float64) - 1) * EDGE  # [10, 2]
        points = torch.cat([*blobs, outliers])
    elif name == "ring":
        angle = torch.arange(72, dtype=torch.float64) * (2 * math.pi / 72)  # [72]
        points = 0.7 * torch.stack([angle.cos(), angle.sin()], dim=-1) + 0.03 * normal(72)
    else:
        rotation = torch.tensor([[0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
        points = torch.cat([blob(45, 0.0, 0.34, 0.36, 0.05) @ rotation, blob(45, 0.0, -0.34, 0.36, 0.05) @ rotation])
    return points.clamp(-EDGE, EDGE)


def initial_logits(points: Tensor, options: ClusterOptions) -> Tensor:
    """Initial logits of a clustering.

    All parents receive the same votes, so that equal logits would keep them equal. `k-means++` selects J points, each
    with a probability proportional to its squared distance from those selected before, and prefers the nearest of them.
    `random` draws normal logits. `uniform` gives equal logits.

    Args:
        points: The points.
        options: Number of clusters, kind of initialization and seed.

    Shape:
        points: [N, 2]; returns [1, N, J].

    Returns:
        The logits.
    """
    rng = torch.Generator().manual_seed(options.seed)
    count = len(points)
    if options.start == "uniform":
        return points.new_zeros(1, count, options.clusters)
    if options.start == "random":
        return torch.randn(1, count, options.clusters, generator=rng, dtype=points.dtype)
    chosen = [int(torch.randint(count, (1,), generator=rng))]
    while len(chosen) < options.clusters:
        distance = torch.cdist(points, points[chosen]).square().amin(dim=1)  # [N]
        # With fewer distinct points than clusters some points are selected twice.
        odds = distance if bool(distance.sum() > 0) else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(odds, 1, generator=rng)))
    return -torch.cdist(points, points[chosen]).square().unsqueeze(0) / (2 * 0.2**2)  # [1, N, J]


def to_sphere(points: Tensor) -> Tensor:
    """Map the plane to the unit sphere by stereographic projection.

    Capsule k-means compares directions. On the sphere the dot product of two points is
    1 - 2 |p - q|^2 / ((1 + p^2)(1 + q^2)), with p and q in units of the radius: near points have near directions.

    Args:
        points: Points of the plane.

    Shape:
        points: [..., 2]; returns [..., 3].

    Returns:
        Unit vectors.
    """
    p = points / SPHERE_RADIUS  # [..., 2]
    square = p.square().sum(dim=-1, keepdim=True)  # [..., 1]
    return torch.cat([2 * p, 1 - square], dim=-1) / (1 + square)  # [..., 3]


def to_plane(directions: Tensor) -> Tensor:
    """Map directions back to the plane: the inverse of `to_sphere`, finite also at the far pole.

    Args:
        directions: Vectors of any length.

    Shape:
        directions: [..., 3]; returns [..., 2].

    Returns:
        Points of the plane.

    Example:
        >>> to_plane(3 * to_sphere(torch.tensor([0.3, -0.2])))
        tensor([ 0.3000, -0.2000])
    """
    length = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)  # [..., 1]
    below = (length + directions[..., 2:]).clamp(min=1e-3)  # [..., 1]
    return SPHERE_RADIUS * directions[..., :2] / below  # [..., 2]


def point_weight(count: int, clusters: int) -> float:
    """Activation of a point, such that all points together count as two children per cluster.

    Activations of the clusters then do not depend on the number of points.

    Args:
        count: Number of points.
        clusters: Number of clusters.

    Returns:
        The activation, at most 1.
    """
    return min(1.0, 2 * clusters / count)


def cluster(points: Tensor, routing: Literal["em", "kmeans"], options: ClusterOptions) -> Trace:
    """Route points to clusters.

    Args:
        points: The points.
        routing: Name of the routing algorithm.
        options: Options of the clustering.

    Shape:
        points: [N, 2]; votes are [1, N, J, 2] for EM, and [1, N, J, 3] on the sphere for k-means.

    Returns:
        Every iteration.
    """
    count, clusters = len(points), options.clusters
    logits, weight = initial_logits(points, options), point_weight(count, clusters)
    if routing == "kmeans":
        votes = (weight * to_sphere(points)).expand(1, clusters, count, 3).transpose(1, 2)  # [1, N, J, 3]
        return ops.trace("kmeans", votes, logits, iters=options.iters, inverse_temp=options.gain / weight)
    votes = points.expand(1, clusters, count, 2).transpose(1, 2)  # [1, N, J, 2]
    betas = {"beta_u": votes.new_full((clusters,), BETA_U), "beta_a": votes.new_full((clusters,), BETA_A)}
    params = {"iters": options.iters, "inverse_temp": options.schedule, "covariance": options.covariance}
    present = votes.new_full((1, count), weight)  # [1, N]
    return ops.trace("em", votes, present, logits, **betas, **params, variance_floor=VARIANCE_FLOOR)


def ellipses(trace: Trace, points: Tensor, *, diagonal: bool = False) -> tuple[Tensor, Tensor]:
    """Means and covariances of the clusters in the plane, by iteration.

    The covariance is that of the points about the mean, weighted by their coupling, plus the variance floor. For EM it
    equals the result of the M-step.

    Args:
        trace: Trace of a clustering.
        points: Its points.
        diagonal: Whether off-diagonal entries are zero, as for EM with diagonal covariance.

    Shape:
        points: [N, 2]; returns [R, J, 2] and [R, J, 2, 2].

    Returns:
        Means and covariances.
    """
    poses = trace.poses[:, 0]  # [R, J, D]
    means = poses if poses.shape[-1] == 2 else to_plane(poses)  # [R, J, 2]
    coupling = trace.coupling[:, 0]  # [R, N, J]
    # Moments avoid a tensor of all differences, [R, N, J, 2].
    x, y = points.unbind(dim=-1)  # [N]
    moments = coupling.mT @ torch.stack([x * x, x * y, x * y, y * y, x, y, torch.ones_like(x)], dim=-1)  # [R, J, 7]
    square, total, mass = moments[..., :4].unflatten(-1, (2, 2)), moments[..., 4:6], moments[..., 6, None, None]
    cross = torch.einsum("rjd,rje->rjde", total, means)  # [R, J, 2, 2]
    scatter = square - cross - cross.mT + mass * torch.einsum("rjd,rje->rjde", means, means)  # [R, J, 2, 2]
    covariance = scatter / mass.clamp(min=1e-7) + VARIANCE_FLOOR * torch.eye(2, dtype=points.dtype)  # [R, J, 2, 2]
    return means, covariance.diagonal(dim1=-2, dim2=-1).diag_embed() if diagonal else covariance
