"""EM routing as the paper states it, in logarithms: the definition that every fast twin is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, last_step, parent_softmax
from torchcaps.ops.em.schedules import InverseTemp, inverse_temps
from torchcaps.ops.votes import check_activations, check_votes
from torchcaps.types import Routed

Covariance = Literal["diagonal", "full"]

# Added to the share of the children that a parent has, so that a parent without any has mean zero and finite gradients.
MASS_FLOOR = 1e-7


class Gaussians(NamedTuple):
    """One Gaussian per parent."""

    mean: Tensor  # [B, J, D]
    variance: Tensor  # [B, J, D]
    factor: Tensor | None  # [B, J, D, D], the Cholesky factor of a full covariance
    log_det: Tensor  # [B, J]


def _m_step(share: Tensor, votes: Tensor, old: Tensor | None, momentum: float, floor: float, full: bool) -> Gaussians:
    mass = share.sum(dim=1).unsqueeze(-1) + MASS_FLOOR  # [B, J, 1]
    mean = torch.einsum("bij,bijd->bjd", share, votes) / mass  # [B, J, D]
    if momentum and old is not None:
        mean = (1 - momentum) * mean + momentum * old  # [B, J, D]
    apart = votes - mean.unsqueeze(1)  # [B, I, J, D]
    if not full:
        variance = torch.einsum("bij,bijd->bjd", share, apart.square()) / mass + floor  # [B, J, D]
        return Gaussians(mean, variance, None, variance.log().sum(dim=-1))
    covariance = torch.einsum("bij,bijd,bije->bjde", share, apart, apart) / mass.unsqueeze(-1)  # [B, J, D, D]
    variance = covariance.diagonal(dim1=-2, dim2=-1)  # [B, J, D]
    # Beside the floor a part of the trace, so that rounding cannot make the matrix of huge votes indefinite.
    size = votes.shape[-1]
    rounding = size**2 * torch.finfo(votes.dtype).eps * variance.sum(dim=-1, keepdim=True)  # [B, J, 1]
    covariance = covariance + torch.diag_embed((floor + rounding).expand_as(variance))  # [B, J, D, D]
    factor = torch.linalg.cholesky(covariance)  # [B, J, D, D]
    log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # [B, J]
    return Gaussians(mean, covariance.diagonal(dim1=-2, dim2=-1), factor, log_det)


def _log_density(votes: Tensor, gaussians: Gaussians) -> Tensor:
    apart = votes - gaussians.mean.unsqueeze(1)  # [B, I, J, D]
    if gaussians.factor is None:
        distance = (apart.square() / gaussians.variance.unsqueeze(1)).sum(dim=-1)  # [B, I, J]
    else:
        whitened = torch.linalg.solve_triangular(gaussians.factor, apart.permute(0, 2, 3, 1), upper=False)
        distance = whitened.square().sum(dim=2).transpose(1, 2)  # [B, I, J]
    constant = votes.shape[-1] * math.log(2 * math.pi)
    return -0.5 * (distance + gaussians.log_det.unsqueeze(1) + constant)  # [B, I, J]


def check_em(votes: Tensor, activations: Tensor, beta_u: Tensor, beta_a: Tensor, logits: Tensor | None = None) -> None:
    """Raise unless votes [B, I, J, D], activations [B, I], the betas [J] and logits [B, I, J] belong together."""
    check_votes(votes)
    check_activations(activations, votes)
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        if beta.shape != votes.shape[2:3]:
            raise ShapeError(f"{name}: expected {tuple(votes.shape[2:3])}, got {tuple(beta.shape)}")
    if logits is not None and logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")


def check_em_options(covariance: str, variance_floor: float, momentum: float) -> None:
    """Raise unless the covariance exists, the floor is positive and finite and the momentum lies in [0, 1)."""
    if covariance not in get_args(Covariance):
        raise ConfigError(f"covariance: expected one of {', '.join(get_args(Covariance))}, got '{covariance}'")
    if not 0 < variance_floor < math.inf:
        raise ConfigError(f"variance_floor: expected a finite number above 0, got {variance_floor}")
    if not 0 <= momentum < 1:
        raise ConfigError(f"momentum: expected a number from 0 to below 1, got {momentum}")


def em_steps(
    votes: Tensor,
    activations: Tensor,
    logits: Tensor | None = None,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    inverse_temp: InverseTemp = "paper",
    covariance: Covariance = "diagonal",
    variance_floor: float = 0.1,
    momentum: float = 0.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Run procedure 1 of the paper and give each iteration as it ends; see `em_routing`."""
    check_em(votes, activations, beta_u, beta_a, logits)
    check_em_options(covariance, variance_floor, momentum)
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    mean = None
    for iteration, inverse in enumerate(inverse_temps(inverse_temp, iters)):
        coupling = softmax(logits)  # [B, I, J]
        share = coupling * activations.unsqueeze(-1)  # [B, I, J]
        gaussians = _m_step(share, votes, mean, momentum, variance_floor, covariance == "full")
        mean = gaussians.mean  # [B, J, D]
        # The sum over h of beta_u + ln sigma_h, with sigma the deviation: half of the logarithm of the variance.
        cost = (votes.shape[-1] * beta_u + 0.5 * gaussians.log_det) * share.sum(dim=1)  # [B, J]
        activity = inverse * (beta_a - cost)  # [B, J]
        extras = {"variance": gaussians.variance, "cost": cost}
        yield Step(logits, coupling, mean, activity.sigmoid(), extras)
        if iteration < iters - 1:
            logits = F.logsigmoid(activity).unsqueeze(1) + _log_density(votes, gaussians)  # [B, I, J]


def em_routing(
    votes: Tensor,
    activations: Tensor,
    logits: Tensor | None = None,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    inverse_temp: InverseTemp = "paper",
    covariance: Covariance = "diagonal",
    variance_floor: float = 0.1,
    momentum: float = 0.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Let each parent be a Gaussian that explains the votes of its children.

    Repeat `iters` times, with share_ij = coupling_ij a_i (Hinton et al. 2018, procedure 1):
    M-step: mean_j and variance_j of the votes, weighted by share; cost_jh = (beta_u + ln sigma_jh) sum_i share_ij;
    a_j = sigmoid(inverse_temp (beta_a - sum_h cost_jh)). E-step: coupling_ij proportional to
    a_j N(votes_ij; mean_j, variance_j), normalised over the parents. votes [B, I, J, D], activations [B, I] and the
    betas [J] give poses (the means) [B, J, D], activations [B, J] and the coupling [B, I, J] of the last M-step.

    `logits` [B, I, J] are where the routing starts, zero unless given. `inverse_temp` is a schedule ('paper',
    'released', 'linear'), a number, one number per iteration, or a function of the iteration. `variance_floor` is added
    to the variances; `momentum` of the old mean stays. A full covariance takes ln sqrt(det) as the sum of ln sigma_h.
    `softmax` says which parents a child chooses from: all J, unless a convolution gives its own (`Window.softmax`).

    >>> out = em_routing(torch.randn(2, 6, 3, 16), torch.rand(2, 6), beta_u=torch.zeros(3), beta_a=torch.zeros(3))
    >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
    (torch.Size([2, 3, 16]), True)
    """
    last = last_step(
        em_steps(
            votes,
            activations,
            logits,
            beta_u=beta_u,
            beta_a=beta_a,
            iters=iters,
            inverse_temp=inverse_temp,
            covariance=covariance,
            variance_floor=variance_floor,
            momentum=momentum,
            softmax=softmax,
        )
    )
    return Routed(last.poses, last.activations, last.coupling)
