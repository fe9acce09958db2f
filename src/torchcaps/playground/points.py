"""Points in a plane and how a routing clusters them: every point is a child that votes the same for all parents.

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

Preset = Literal["two blobs", "three blobs and outliers", "ring", "stretched"]
Start = Literal["spread", "noise", "equal"]

EDGE = torch.tensor([1.5, 1.0], dtype=torch.float64)  # [2]
# The radius of the ball that the plane is wrapped around for k-means.
BALL = 1.5
FLOOR = 0.001
# A cluster of deviation 0.35 costs nothing, a tighter one pays, and one without points is not worth its price.
BETA_U = -math.log(0.35)
BETA_A = -1.0


class Options(NamedTuple):
    """What a clustering depends on beside the points."""

    clusters: int
    iters: int
    start: Start = "spread"
    seed: int = 0
    covariance: Covariance = "diagonal"
    schedule: str | float = "paper"
    gain: float = 20.0


def preset(name: Preset, seed: int) -> Tensor:
    """Points [N, 2] of a known shape, the same for the same seed.

    >>> preset("ring", 0).shape
    torch.Size([72, 2])
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(count: int) -> Tensor:
        return torch.randn(count, 2, generator=draw, dtype=torch.float64)  # [N, 2]

    def blob(count: int, x: float, y: float, width: float, height: float) -> Tensor:
        return torch.tensor([x, y]) + normal(count) * torch.tensor([width, height])  # [N, 2]

    if name == "two blobs":
        points = torch.cat([blob(40, -0.6, 0.1, 0.17, 0.17), blob(40, 0.6, -0.1, 0.17, 0.17)])
    elif name == "three blobs and outliers":
        blobs = [blob(28, -0.8, -0.35, 0.13, 0.13), blob(28, 0.75, -0.4, 0.13, 0.13), blob(28, 0.0, 0.5, 0.13, 0.13)]
        anywhere = (2 * torch.rand(10, 2, generator=draw, dtype=torch.float64) - 1) * EDGE  # [10, 2]
        points = torch.cat([*blobs, anywhere])
    elif name == "ring":
        angle = torch.arange(72, dtype=torch.float64) * (2 * math.pi / 72)  # [72]
        points = 0.7 * torch.stack([angle.cos(), angle.sin()], dim=-1) + 0.03 * normal(72)
    else:
        turn = torch.tensor([[0.8, 0.6], [-0.6, 0.8]], dtype=torch.float64)
        points = torch.cat([blob(45, 0.0, 0.34, 0.36, 0.05) @ turn, blob(45, 0.0, -0.34, 0.36, 0.05) @ turn])
    return points.clamp(-EDGE, EDGE)


def start_logits(points: Tensor, options: Options) -> Tensor:
    """Where the routing begins, [1, N, J], since parents that see the same votes would stay the same for ever.

    `spread` picks J points, each with a probability that grows with the squared distance from those picked before
    (k-means++), and prefers the nearest of them; `noise` prefers at random; `equal` shows what happens without.
    """
    draw = torch.Generator().manual_seed(options.seed)
    count = len(points)
    if options.start == "equal":
        return points.new_zeros(1, count, options.clusters)
    if options.start == "noise":
        return torch.randn(1, count, options.clusters, generator=draw, dtype=points.dtype)
    chosen = [int(torch.randint(count, (1,), generator=draw))]
    while len(chosen) < options.clusters:
        apart = torch.cdist(points, points[chosen]).square().amin(dim=1)  # [N]
        # Where fewer places than clusters are taken, places are shared.
        odds = apart if bool(apart.sum() > 0) else torch.ones_like(apart)
        chosen.append(int(torch.multinomial(odds, 1, generator=draw)))
    return -torch.cdist(points, points[chosen]).square().unsqueeze(0) / (2 * 0.2**2)  # [1, N, J]


def wrap(points: Tensor) -> Tensor:
    """Points of the plane on a ball, [..., 2] to unit vectors [..., 3], by stereographic projection.

    K-means of capsules compares directions; on the ball the product of two is 1 - 2 |p - q|^2 / ((1 + p^2)(1 + q^2)),
    with p and q in units of its radius: near points have near directions.
    """
    p = points / BALL  # [..., 2]
    square = p.square().sum(dim=-1, keepdim=True)  # [..., 1]
    return torch.cat([2 * p, 1 - square], dim=-1) / (1 + square)  # [..., 3]


def unwrap(directions: Tensor) -> Tensor:
    """Back from directions [..., 3] of any length to the plane [..., 2]; the far pole goes far away, not to infinity.

    >>> unwrap(3 * wrap(torch.tensor([0.3, -0.2])))
    tensor([ 0.3000, -0.2000])
    """
    length = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)  # [..., 1]
    below = (length + directions[..., 2:]).clamp(min=1e-3)  # [..., 1]
    return BALL * directions[..., :2] / below  # [..., 2]


def weight_of(count: int, clusters: int) -> float:
    """How much a point counts: all together two for each cluster, so that activations do not depend on their number."""
    return min(1.0, 2 * clusters / count)


def cluster(points: Tensor, routing: Literal["em", "kmeans"], options: Options) -> Trace:
    """Route points [N, 2] to clusters: votes [1, N, J, 2] for EM, and [1, N, J, 3] on the ball for k-means."""
    count, clusters = len(points), options.clusters
    logits, weight = start_logits(points, options), weight_of(count, clusters)
    if routing == "kmeans":
        votes = (weight * wrap(points)).expand(1, clusters, count, 3).transpose(1, 2)  # [1, N, J, 3]
        return ops.trace("kmeans", votes, logits, iters=options.iters, inverse_temp=options.gain / weight)
    votes = points.expand(1, clusters, count, 2).transpose(1, 2)  # [1, N, J, 2]
    betas = {"beta_u": votes.new_full((clusters,), BETA_U), "beta_a": votes.new_full((clusters,), BETA_A)}
    how = {"iters": options.iters, "inverse_temp": options.schedule, "covariance": options.covariance}
    present = votes.new_full((1, count), weight)  # [1, N]
    return ops.trace("em", votes, present, logits, **betas, **how, variance_floor=FLOOR)


def ellipses(trace: Trace, points: Tensor, *, upright: bool = False) -> tuple[Tensor, Tensor]:
    """Means [R, J, 2] and covariances [R, J, 2, 2] of the clusters of each iteration, in the plane.

    The covariance is that of the points, weighted by their coupling, about the mean of the iteration. For EM it is what
    the M-step found, so that one of diagonal covariances (`upright`) has no other entries.
    """
    poses = trace.poses[:, 0]  # [R, J, D]
    means = poses if poses.shape[-1] == 2 else unwrap(poses)  # [R, J, 2]
    coupling = trace.coupling[:, 0]  # [R, N, J]
    # Moments first, so that nothing of the size of all distances is made.
    x, y = points.unbind(dim=-1)  # [N]
    moments = coupling.mT @ torch.stack([x * x, x * y, x * y, y * y, x, y, torch.ones_like(x)], dim=-1)  # [R, J, 7]
    square, total, mass = moments[..., :4].unflatten(-1, (2, 2)), moments[..., 4:6], moments[..., 6, None, None]
    cross = torch.einsum("rjd,rje->rjde", total, means)  # [R, J, 2, 2]
    scatter = square - cross - cross.mT + mass * torch.einsum("rjd,rje->rjde", means, means)  # [R, J, 2, 2]
    covariance = scatter / mass.clamp(min=1e-7) + FLOOR * torch.eye(2, dtype=points.dtype)  # [R, J, 2, 2]
    return means, covariance.diagonal(dim1=-2, dim2=-1).diag_embed() if upright else covariance
