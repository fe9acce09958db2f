"""Variational Bayes routing as the paper derives it, in logarithms: the definition that kernels are tested against."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.em.reference import Covariance
from torchcaps.ops.votes import check_activations, check_votes, sum_votes


class Prior(NamedTuple):
    """Belief about a parent before it has children, in units of children.

    Args:
        covariance: `diagonal` or `full` precision.
        concentration: alpha of the Dirichlet distribution of the mixing weights.
        strength: kappa of the Gaussian distribution of the mean about zero.
        scatter: Inverse of Psi of the Wishart distribution of the precision.

    Example:
        >>> Prior(scatter=2.0).covariance
        'diagonal'
    """

    covariance: Covariance = "diagonal"
    concentration: float = 1.0  # alpha, of the Dirichlet distribution of the mixing weights
    strength: float = 1.0  # kappa, of the Gaussian distribution of the mean about zero
    scatter: float = 1.0  # the inverse of Psi, of the Wishart distribution of the precision

    def check(self) -> None:
        """Check the options.

        Raises:
            ConfigError: If the covariance is unknown or a number is not finite and above 0.
        """
        if self.covariance not in get_args(Covariance):
            raise ConfigError(f"covariance: expected one of {', '.join(get_args(Covariance))}, got '{self.covariance}'")
        for name in ("concentration", "strength", "scatter"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}: expected a finite number above 0, got {getattr(self, name)}")

    def entropy(self, size: int) -> float:
        """Compute the entropy of a vote for a parent without children.

        Args:
            size: Number of dimensions of the vote.

        Returns:
            The entropy in nats.
        """
        empty = torch.zeros(1, 1, 1, device="cpu")
        return float(update(empty, empty.new_zeros(1, 1, 1, size), self).entropy)


DEFAULT = Prior()


class Posterior(NamedTuple):
    """Belief about the parents after they have seen their children's votes."""

    mean: Tensor  # [B, J, D], m
    strength: Tensor  # [B, J], kappa
    freedom: Tensor  # [B, J], nu, the degrees of freedom of the Wishart distribution
    scatter: Tensor  # [B, J, D], the diagonal of the inverse of Psi
    factor: Tensor | None  # [B, J, D, D], the Cholesky factor of the inverse of a full Psi
    log_weight: Tensor  # [B, J], E[ln pi]
    log_precision: Tensor  # [B, J], E[ln det Lambda]

    @property
    def entropy(self) -> Tensor:
        """The entropy of a Gaussian of the expected precision, [B, J]: low where children agree."""
        return 0.5 * (self.mean.shape[-1] * math.log(2 * math.pi * math.e) - self.log_precision)


def update(share: Tensor, votes: Tensor, prior: Prior) -> Posterior:
    """Update the parents (equations of the paper's M-step): share [B, I, J] and votes [B, I, J, D].

    Args:
        share: Share of each child that belongs to each parent [B, I, J].
        votes: Votes [B, I, J, D].
        prior: Prior of the parents.

    Returns:
        Posterior of the parents.
    """
    size = votes.shape[-1]
    mass = share.sum(dim=1)  # [B, J]
    concentration, strength = prior.concentration + mass, prior.strength + mass  # [B, J]
    mean = sum_votes(share, votes) / strength.unsqueeze(-1)  # [B, J, D]
    apart = votes - mean.unsqueeze(1)  # [B, I, J, D]
    log_weight = concentration.digamma() - concentration.sum(dim=-1, keepdim=True).digamma()  # [B, J]
    if prior.covariance == "diagonal":
        # A Wishart distribution of one dimension for each of the D.
        freedom = 2 + mass  # [B, J]
        scatter = sum_votes(share, apart.square()) + prior.strength * mean.square()  # [B, J, D]
        scatter = prior.scatter + scatter  # [B, J, D]
        log_precision = size * ((freedom / 2).digamma() + math.log(2)) - scatter.log().sum(dim=-1)  # [B, J]
        return Posterior(mean, strength, freedom, scatter, None, log_weight, log_precision)
    freedom = size + 1 + mass  # [B, J]
    scatter = torch.einsum("bij,bijd,bije->bjde", share, apart, apart)  # [B, J, D, D]
    scatter = scatter + prior.strength * torch.einsum("bjd,bje->bjde", mean, mean)  # [B, J, D, D]
    # Beside the prior a part of the trace, so that rounding cannot make the matrix of huge votes indefinite.
    trace = scatter.diagonal(dim1=-2, dim2=-1).sum(dim=-1, keepdim=True)  # [B, J, 1]
    floor = prior.scatter + size**2 * torch.finfo(votes.dtype).eps * trace  # [B, J, 1]
    scatter = scatter + torch.diag_embed(floor.expand_as(mean))  # [B, J, D, D]
    factor = torch.linalg.cholesky(scatter)  # [B, J, D, D]
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # [B, J]
    below = torch.arange(size, dtype=votes.dtype, device=votes.device)  # [D]
    digammas = ((freedom.unsqueeze(-1) - below) / 2).digamma().sum(dim=-1)  # [B, J]
    log_precision = digammas + size * math.log(2) - log_det  # [B, J]
    return Posterior(mean, strength, freedom, scatter.diagonal(dim1=-2, dim2=-1), factor, log_weight, log_precision)


def log_likelihood(votes: Tensor, posterior: Posterior) -> Tensor:
    """E[ln pi_j + ln N(votes_ij; mu_j, Lambda_j)] without what is the same for all parents: [B, I, J]."""
    apart = votes - posterior.mean.unsqueeze(1)  # [B, I, J, D]
    if posterior.factor is None:
        distance = (apart.square() / posterior.scatter.unsqueeze(1)).sum(dim=-1)  # [B, I, J]
    else:
        whitened = torch.linalg.solve_triangular(posterior.factor, apart.permute(0, 2, 3, 1), upper=False)
        distance = whitened.square().sum(dim=2).transpose(1, 2)  # [B, I, J]
    level = posterior.log_weight + 0.5 * (posterior.log_precision - votes.shape[-1] / posterior.strength)  # [B, J]
    return level.unsqueeze(1) - 0.5 * posterior.freedom.unsqueeze(1) * distance  # [B, I, J]


def variational_steps(
    votes: Tensor,
    activations: Tensor,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    prior: Prior = DEFAULT,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by variational Bayes: EM routing with a distribution over each parent's Gaussian, which cannot collapse.

    Algorithm 1 of Ribeiro et al. 2020, repeated `iters` times with share_ij = coupling_ij a_i and R_j = sum_i share_ij.
    Mixing weights are Dirichlet with alpha_j = alpha + R_j, means Gaussian about m_j of strength kappa_j = kappa + R_j,
    precisions Wishart with Psi_j and nu_j = nu + R_j, where m_j = sum_i share_ij votes_ij / kappa_j and Psi_j^-1 =
    Psi^-1 + sum_i share_ij (votes_ij - m_j)^2 + kappa m_j^2; then coupling_ij is proportional to the exponential of
    E[ln pi_j] + (E[ln det Lambda_j] - D / kappa_j - nu_j (votes_ij - m_j) Psi_j (votes_ij - m_j)) / 2. At the end
    a_j = sigmoid(beta_a - (beta_u + H_j) exp E[ln pi_j]), H_j the entropy of a Gaussian of the expected precision. The
    poses are the m_j. See the README beside this file.

    Args:
        votes: Predictions of every child for every parent.
        activations: Activations of the children.
        beta_u: Cost of describing a child.
        beta_a: Cost of leaving a parent inactive.
        iters: Number of routing iterations.
        prior: Belief about a parent without children, and whether precisions are diagonal or full.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; activations: [B, I]; betas: [J]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step per iteration, with the extras `variance`, `weight` and `entropy`.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> betas = {"beta_u": torch.zeros(3), "beta_a": torch.zeros(3)}
        >>> out = variational_routing(torch.randn(2, 6, 3, 16), torch.rand(2, 6), **betas)
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 16]), True)
    """
    check_votes(votes)
    check_activations(activations, votes)
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        if beta.shape != votes.shape[2:3]:
            raise ShapeError(f"{name}: expected {tuple(votes.shape[2:3])}, got {tuple(beta.shape)}")
    check_iters(iters)
    prior.check()
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    for iteration in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        posterior = update(coupling * activations.unsqueeze(-1), votes, prior)
        weight = posterior.log_weight.exp()  # [B, J]
        activity = beta_a - (beta_u + posterior.entropy) * weight  # [B, J]
        # The scale on which a parent expects votes to lie about its mean.
        variance = posterior.scatter / posterior.freedom.unsqueeze(-1)  # [B, J, D]
        extras = {"variance": variance, "weight": weight, "entropy": posterior.entropy}
        yield Step(logits, coupling, posterior.mean, activity.sigmoid(), extras)
        if iteration < iters - 1:
            logits = log_likelihood(votes, posterior)  # [B, I, J]


variational_routing = routing_of(variational_steps)
