from __future__ import annotations

from typing import Literal, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchcaps.ops import squash
from torchcaps.playground.cluster_points import (
    EDGE,
    VARIANCE_FLOOR,
    ClusterOptions,
    Initialization,
    PresetName,
    cluster,
    ellipses,
    initial_logits,
    make_preset,
    point_weight,
    to_plane,
    to_sphere,
)

coordinate = st.floats(-1, 1)
clouds = st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=12).map(
    lambda points: torch.tensor(points, dtype=torch.float64)
)


@pytest.mark.parametrize("name", get_args(PresetName))
def test_presets(name: PresetName) -> None:
    points = make_preset(name, 0)
    assert torch.all(points.abs() <= EDGE)
    assert torch.equal(points, make_preset(name, 0))
    assert not torch.equal(points, make_preset(name, 1))
    assert 50 <= len(points) <= 100


@pytest.mark.parametrize("routing", ["em", "kmeans"])
def test_two_blobs(routing: Literal["em", "kmeans"]) -> None:
    points = make_preset("two blobs", 0)
    trace = cluster(points, routing, ClusterOptions(2, 20))
    belongs = trace.coupling[-1, 0].argmax(dim=-1)  # [N]
    assert len(set(belongs[:40].tolist())) == len(set(belongs[40:].tolist())) == 1
    assert belongs[0] != belongs[-1]
    means, _ = ellipses(trace, points)
    truth = torch.stack([points[belongs == j].mean(dim=0) for j in range(2)])
    torch.testing.assert_close(means[-1], truth, atol=0.02, rtol=0)


def test_full_covariance_of_stretched_groups() -> None:
    points = make_preset("stretched", 0)
    trace = cluster(points, "em", ClusterOptions(2, 20, seed=1, covariance="full"))
    _, covariances = ellipses(trace, points)
    xx, xy, yy = (covariances[-1, :, d, e] for d, e in ((0, 0), (0, 1), (1, 1)))
    assert torch.all(xy.square() > 0.8 * xx * yy)
    assert torch.equal(trace.coupling[-1, 0].argmax(dim=-1), torch.tensor([1, 0]).repeat_interleave(45))


@pytest.mark.parametrize("routing", ["em", "kmeans"])
def test_uniform_start_keeps_clusters_equal(routing: Literal["em", "kmeans"]) -> None:
    points = make_preset("two blobs", 0)
    trace = cluster(points, routing, ClusterOptions(3, 10, start="uniform"))
    torch.testing.assert_close(trace.coupling, torch.full_like(trace.coupling, 1 / 3))
    for start in ("k-means++", "random"):
        differs = cluster(points, routing, ClusterOptions(3, 10, start=start))
        assert (differs.coupling[-1] - 1 / 3).abs().max() > 0.3


@given(clouds, st.integers(1, 8), st.sampled_from(get_args(Initialization)), st.integers(0, 5))
def test_initial_logits_follow_the_seed(points: Tensor, clusters: int, start: Initialization, seed: int) -> None:
    options = ClusterOptions(clusters, 1, start=start, seed=seed)
    logits = initial_logits(points, options)
    assert logits.shape == (1, len(points), clusters)
    assert torch.isfinite(logits).all()
    assert torch.equal(logits, initial_logits(points, options))


def test_kmeans_plus_plus_selects_different_points() -> None:
    points = make_preset("two blobs", 0)
    logits = initial_logits(points, ClusterOptions(4, 1))[0]
    chosen = logits.argmax(dim=0)
    assert len(set(chosen.tolist())) == 4
    torch.testing.assert_close(logits[chosen, torch.arange(4)], torch.zeros(4, dtype=torch.float64))


@given(clouds)
def test_sphere_round_trip(points: Tensor) -> None:
    directions = to_sphere(points)
    torch.testing.assert_close(directions.norm(dim=-1), points.new_ones(len(points)))
    torch.testing.assert_close(to_plane(0.3 * directions), points)
    p, q = points[0] / 1.5, points[-1] / 1.5
    apart = 1 - 2 * (p - q).square().sum() / ((1 + p.square().sum()) * (1 + q.square().sum()))
    torch.testing.assert_close(directions[0] @ directions[-1], apart)


def test_far_pole_is_finite() -> None:
    place = to_plane(torch.tensor([1e-9, 0.0, -1.0]))
    assert torch.isfinite(place).all()


@settings(deadline=None)
@given(clouds, st.integers(1, 4), st.integers(1, 4))
def test_ellipses_are_moments(points: Tensor, clusters: int, iters: int) -> None:
    trace = cluster(points, "em", ClusterOptions(clusters, iters))
    means, axes = ellipses(trace, points, diagonal=True)
    torch.testing.assert_close(means, trace.poses[:, 0])
    torch.testing.assert_close(axes.diagonal(dim1=-2, dim2=-1), trace.extras["variance"][:, 0], atol=1e-6, rtol=1e-5)
    assert torch.all(axes[..., 0, 1] == 0)
    _, covariances = ellipses(trace, points)
    share = trace.coupling[:, 0]  # [R, N, J]
    apart = points[:, None] - means[:, None]  # [R, N, J, 2]
    expected = (
        torch.einsum("rnj,rnjd,rnje->rjde", share, apart, apart) / share.sum(dim=1).clamp(min=1e-7)[..., None, None]
    )
    torch.testing.assert_close(covariances, expected + VARIANCE_FLOOR * torch.eye(2), atol=1e-9, rtol=1e-6)


def test_kmeans_matches_the_formula() -> None:
    points = make_preset("ring", 0)
    trace = cluster(points, "kmeans", ClusterOptions(3, 2, gain=7.0))
    weight = point_weight(72, 3)
    votes = weight * to_sphere(points)
    total = torch.einsum("nj,nd->jd", trace.coupling[0, 0], votes)
    torch.testing.assert_close(trace.poses[0, 0], squash(total, form="half"))
    torch.testing.assert_close(
        trace.logits[1, 0], 7.0 * to_sphere(points) @ (total / total.norm(dim=-1, keepdim=True)).T
    )


def test_activations_do_not_depend_on_the_number_of_points() -> None:
    points = make_preset("two blobs", 0)
    for routing in ("em", "kmeans"):
        few = cluster(points, routing, ClusterOptions(2, 5, start="uniform")).activations
        many = cluster(points.repeat(3, 1), routing, ClusterOptions(2, 5, start="uniform")).activations
        torch.testing.assert_close(few, many)
    assert point_weight(1, 8) == 1.0
