"""Variational Bayes routing against the textbook's equations for a mixture of Gaussians."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import Prior, variational_routing
from torchcaps.ops.em.reference import Covariance
from torchcaps.ops.variational.reference import DEFAULT


def sample(
    batch: int = 2, children: int = 7, parents: int = 3, dim: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    activations = torch.rand(batch, children, generator=generator, dtype=dtype)
    return normal(batch, children, parents, dim), activations, {"beta_u": normal(parents), "beta_a": normal(parents)}


def textbook(share: Tensor, points: Tensor, masses: Tensor, j: int, prior: Prior) -> tuple[Tensor, Tensor, Tensor]:
    """Bishop 2006, equations 10.51 to 10.67, for one parent: its mean, E[ln det Lambda], and its logits.

    share [I], points [I, D], masses [J]: scatter about the children's own mean, inverses instead of factors.
    """
    size, mass = points.shape[1], share.sum()
    mean = (share[:, None] * points).sum(0) / mass
    scatter = sum(r * torch.outer(x - mean, x - mean) for r, x in zip(share, points, strict=True))
    pulled = prior.strength * mass / (prior.strength + mass) * torch.outer(mean, mean)
    inverse = prior.scatter * torch.eye(size, dtype=points.dtype) + scatter + pulled
    freedom, strength = size + 1 + mass, prior.strength + mass
    log_det = sum(torch.digamma((freedom + 1 - d) / 2) for d in range(1, size + 1))
    log_det = log_det + size * math.log(2) + inverse.inverse().logdet()
    m = mass * mean / strength
    distance = torch.stack([size / strength + freedom * (x - m) @ inverse.inverse() @ (x - m) for x in points])
    alphas = prior.concentration + masses
    log_weight = torch.digamma(alphas[j]) - torch.digamma(alphas.sum())
    return m, log_det, log_weight + 0.5 * log_det - 0.5 * distance


@pytest.mark.parametrize("prior", [Prior("full"), Prior("full", concentration=0.5, strength=2.0, scatter=0.3)])
def test_textbook_equations(prior: Prior) -> None:
    votes, activations, betas = sample()
    trace = ops.trace("variational", votes, activations, **betas, iters=2, prior=prior)
    for b in range(2):
        share = activations[b].unsqueeze(-1) * trace.coupling[0, b]  # [I, J]
        for j in range(3):
            mean, log_det, logits = textbook(share[:, j], votes[b, :, j], share.sum(0), j, prior)
            torch.testing.assert_close(trace.poses[0, b, j], mean)
            torch.testing.assert_close(trace.logits[1, b, :, j], logits)
            entropy = 0.5 * 4 * math.log(2 * math.pi * math.e) - 0.5 * float(log_det)
            assert float(trace.extras["entropy"][0, b, j]) == pytest.approx(entropy)
            weight = float(trace.extras["weight"][0, b, j])
            activity = float(betas["beta_a"][j]) - (float(betas["beta_u"][j]) + entropy) * weight
            assert float(trace.activations[0, b, j]) == pytest.approx(1 / (1 + math.exp(-activity)))


def test_mixing_weights_of_dirichlet_distribution() -> None:
    votes, activations, betas = sample(batch=1)
    weight = ops.trace("variational", votes, activations, **betas, iters=2).extras["weight"][1, 0]
    alphas = 1 + (
        activations[0, :, None] * ops.trace("variational", votes, activations, **betas, iters=2).coupling[1, 0]
    ).sum(0)
    torch.manual_seed(0)
    drawn = torch.distributions.Dirichlet(alphas).sample(torch.Size((200_000,))).log().mean(0).exp()
    torch.testing.assert_close(weight, drawn, rtol=2e-2, atol=0)


def test_diagonal_precision_is_wishart_per_dimension() -> None:
    votes, activations, betas = sample()
    whole = ops.trace("variational", votes, activations, **betas, iters=2)
    parts = [
        ops.trace("variational", votes[..., d : d + 1], activations, **betas, iters=2, prior=Prior("full"))
        for d in range(4)
    ]
    log_weight = whole.extras["weight"][0].log().unsqueeze(1)
    torch.testing.assert_close(whole.poses[0], torch.cat([part.poses[0] for part in parts], -1))
    torch.testing.assert_close(whole.logits[1], sum(part.logits[1] for part in parts) - 3 * log_weight)
    torch.testing.assert_close(whole.extras["entropy"][0], sum(part.extras["entropy"][0] for part in parts))


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_parent_without_children_is_prior(covariance: Covariance) -> None:
    votes, activations, betas = sample()
    prior = Prior(covariance, scatter=0.2)
    trace = ops.trace("variational", votes, torch.zeros_like(activations), **betas, prior=prior)
    assert not trace.poses.any()
    entropy = trace.extras["entropy"]
    torch.testing.assert_close(entropy, torch.full_like(entropy, prior.entropy(4)), rtol=1e-5, atol=1e-5)


def test_prior_prevents_collapse_to_one_child() -> None:
    # EM's variance falls to its floor on a single vote; here it stays where the prior and one child put it.
    votes, activations, betas = sample(batch=1, children=1, parents=1)
    variance = ops.trace("variational", votes, torch.ones_like(activations), **betas).extras["variance"]
    assert float(variance.min()) > 0.3


def test_agreement_raises_activation() -> None:
    votes, activations, betas = sample(parents=2)
    votes[:, :, 0] = votes[:, :1, 0]
    # Entropy is measured from that of the prior: a narrower distribution supports the parent.
    betas = {"beta_u": torch.full_like(betas["beta_u"], -Prior().entropy(4)), "beta_a": 0 * betas["beta_a"]}
    out = variational_routing(votes, activations, **betas)
    assert bool((out.activations[:, 0] > out.activations[:, 1]).all())
    assert bool((out.activations[:, 0] > 0.5).all())


@pytest.mark.parametrize(("dtype", "iters"), [(torch.float32, 1), (torch.float32, 10), (torch.float64, 3)])
@pytest.mark.parametrize("case", ["zero", "equal", "huge", "tiny", "huge and equal", "inactive", "one child"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_values_and_gradients_are_finite(dtype: torch.dtype, iters: int, case: str, covariance: Covariance) -> None:
    votes, activations, betas = sample(dtype=dtype)
    if case == "zero":
        votes = torch.zeros_like(votes)
    elif case == "equal":
        votes = votes[:, :1, :1].expand_as(votes).clone()
    elif case == "huge":
        votes = 1e6 * votes
    elif case == "tiny":
        votes = 1e-12 * votes
    elif case == "huge and equal":
        votes = 1e6 * votes[:, :1, :1].expand_as(votes).clone()
    elif case == "inactive":
        activations = torch.zeros_like(activations)
    elif case == "one child":
        votes, activations = votes[:1, :1], activations[:1, :1]
    inputs = [tensor.requires_grad_() for tensor in (votes, activations, *betas.values())]
    out = variational_routing(
        votes, activations, beta_u=inputs[2], beta_a=inputs[3], iters=iters, prior=Prior(covariance)
    )
    weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
    ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
    for tensor in (*out, *(tensor.grad for tensor in inputs)):
        assert tensor is not None
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_gradcheck(covariance: Covariance) -> None:
    votes, activations, betas = sample(batch=1, children=4, parents=2, dim=3)

    def values(votes: Tensor, activations: Tensor, beta_u: Tensor, beta_a: Tensor) -> tuple[Tensor, ...]:
        return tuple(variational_routing(votes, activations, beta_u=beta_u, beta_a=beta_a, prior=Prior(covariance)))

    assert torch.autograd.gradcheck(
        values, [tensor.requires_grad_() for tensor in (votes, activations, *betas.values())]
    )


def test_errors_name_the_argument() -> None:
    votes, activations, betas = sample()
    with raises_about(ShapeError, "activations", "(2, 6)"):
        variational_routing(votes, activations[:, :6], **betas)
    with raises_about(ShapeError, "beta_u", "(2,)"):
        variational_routing(votes, activations, beta_u=betas["beta_u"][:2], beta_a=betas["beta_a"])
    with raises_about(ConfigError, "iters", "0"):
        variational_routing(votes, activations, **betas, iters=0)
    with raises_about(ConfigError, "covariance", "'round'"):
        variational_routing(votes, activations, **betas, prior=Prior("round"))  # pyright: ignore[reportArgumentType]
    for name in ("concentration", "strength", "scatter"):
        with raises_about(ConfigError, f"{name}:", 0.0):
            variational_routing(votes, activations, **betas, prior=DEFAULT._replace(**{name: 0.0}))
