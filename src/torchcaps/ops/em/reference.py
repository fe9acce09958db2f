"""EM routing as the paper states it, in logarithms: the definition that every kernel is tested against."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._iterations import Background, ParentSoftmax, Step, parent_softmax, routing_of
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
from torchcaps.ops.votes import check_activations, check_votes, sum_votes

Covariance = Literal["diagonal", "full"]
Start = Literal["parents", "types"]

# Added to the share of the children that a parent has, so that a parent without any has mean zero and finite gradients.
MASS_FLOOR = 1e-7


class Gaussians(NamedTuple):
    """One Gaussian per parent."""

    mean: Tensor  # [B, J, D]
    variance: Tensor  # [B, J, D]
    factor: Tensor | None  # [B, J, D, D], the Cholesky factor of a full covariance
    log_det: Tensor  # [B, J]


class Floors(NamedTuple):
    """What is added to the variance, and to the sum of the shares, of a parent."""

    variance: float
    mass: float


def _m_step(share: Tensor, votes: Tensor, old: Tensor | None, momentum: float, floors: Floors, full: bool) -> Gaussians:
    floor = floors.variance
    mass = share.sum(dim=1).unsqueeze(-1) + floors.mass  # [B, J, 1]
    mean = sum_votes(share, votes) / mass  # [B, J, D]
    if momentum:
        mean = (1 - momentum) * mean  # [B, J, D]
        # Before the first iteration the mean is zero.
        mean = mean if old is None else mean + momentum * old  # [B, J, D]
    apart = votes - mean.unsqueeze(1)  # [B, I, J, D]
    if not full:
        variance = sum_votes(share, apart.square()) / mass + floor  # [B, J, D]
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
    """Raise unless votes [B, I, J, D], activations [B, I], the betas [J] and logits [B, I, J] belong together.

    Args:
        votes: Votes [B, I, J, D].
        activations: Activations of the children [B, I].
        beta_u: Cost of describing a child [J].
        beta_a: Cost of leaving a parent inactive [J].
        logits: Logits that the first iteration starts with [B, I, J]; None for none.
    """
    check_votes(votes)
    check_activations(activations, votes)
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        if beta.shape != votes.shape[2:3]:
            raise ShapeError(f"{name}: expected {tuple(votes.shape[2:3])}, got {tuple(beta.shape)}")
    if logits is not None and logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")


def check_em_options(
    covariance: str, variance_floor: float, momentum: float, start: str = "parents", mass_floor: float = MASS_FLOOR
) -> None:
    """Raise unless the covariance and the start exist, the floors are positive and the momentum lies in [0, 1).

    Args:
        covariance: Form of the covariance.
        variance_floor: Smallest variance.
        momentum: Share of the old mean that stays.
        start: First coupling.
        mass_floor: Added to the sum of the shares of a parent.
    """
    for name, value, known in (("covariance", covariance, Covariance), ("start", start, Start)):
        if value not in get_args(known):
            raise ConfigError(f"{name}: expected one of {', '.join(get_args(known))}, got '{value}'")
    for name, value in (("variance_floor", variance_floor), ("mass_floor", mass_floor)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{name}: expected a finite number above 0, got {value}")
    if not 0 <= momentum < 1:
        raise ConfigError(f"momentum: expected a number from 0 to below 1, got {momentum}")


def check_background(background: Background) -> None:
    """Raise unless the background is None, a finite number or a tensor of one element."""
    if isinstance(background, Tensor):
        if background.numel() != 1:
            raise ShapeError(f"background: expected one element, got {tuple(background.shape)}")
    elif background is not None and (isinstance(background, str | bool) or not math.isfinite(background)):
        raise ConfigError(f"background: expected a finite number or None, got {background}")


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
    sharpness: Sharpness = 1.0,
    background: Background = None,
    start: Start = "parents",
    mass_floor: float = MASS_FLOOR,
    load: Tensor | None = None,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by expectation-maximisation: each parent is a Gaussian that explains the votes of its children.

    Procedure 1 of Hinton et al. 2018, repeated `iters` times with share_ij = coupling_ij a_i. M-step: mean_j and
    variance_j of the votes, weighted by share; cost_jh = (beta_u + ln sigma_jh) sum_i share_ij; a_j =
    sigmoid(inverse_temp (beta_a - sum_h cost_jh)). E-step: coupling_ij proportional to
    a_j N(votes_ij; mean_j, variance_j)^sharpness, normalised over the parents.

    Args:
        votes: Predictions of every child for every parent.
        activations: Activations of the children, from 0 to 1.
        logits: Logits of the first coupling; zero by default.
        beta_u: Cost of describing one child's vote in one dimension.
        beta_a: Cost of leaving a parent inactive.
        iters: Number of routing iterations.
        inverse_temp: A schedule ('paper', 'released', 'linear'), a number, one number per iteration, or a function of
            the iteration.
        covariance: 'diagonal', or 'full', which takes ln sqrt(det) as the sum of ln sigma_h.
        variance_floor: Added to the variances.
        momentum: Share of the old mean that stays. The mean before the first iteration is zero.
        sharpness: Factor on the log density in the E-step: a number, or one per iteration for the E-step that follows
            it. Below 1 a child divides itself more evenly, and the gradient through several E-steps stays small.
        background: Logit of belonging to no parent, added to the normaliser of every E-step: coupling_ij =
            e^l_ij / (e^background + sum_j e^l_ij) with l = ln a_j + sharpness ln N. A number, or a tensor of one
            element where it is learned. Without it the coupling of a child sums to 1.
        start: First coupling. With 'parents' all parents that see a child get the same share of it; with 'types' each
            gets 1/J of it, also where several positions of a kernel see the child.
        mass_floor: Added to the sum of the shares of a parent.
        load: Number that the cost of each sample is divided by, such as its number of children per parent.
        softmax: Softmax over the parents that a child chooses from: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; activations: [B, I]; logits: [B, I, J]; betas: [J]; load: [B]; poses [B, J, D],
        activations [B, J], coupling [B, I, J].

    Yields:
        One step per iteration, with the extras `variance`, `cost` and `activity`.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> out = em_routing(torch.randn(2, 6, 3, 16), torch.rand(2, 6), beta_u=torch.zeros(3), beta_a=torch.zeros(3))
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 16]), True)
    """
    check_em(votes, activations, beta_u, beta_a, logits)
    check_em_options(covariance, variance_floor, momentum, start, mass_floor)
    check_background(background)
    if load is not None and load.shape != votes.shape[:1]:
        raise ShapeError(f"load: expected {tuple(votes.shape[:1])}, got {tuple(load.shape)}")
    if logits is not None and start != "parents":
        raise ConfigError(f"start: expected 'parents' where logits are given, got '{start}' (logits are a start too)")
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    coupling = softmax(logits) if start == "parents" else torch.full_like(logits, 1 / votes.shape[2])  # [B, I, J]
    floors = Floors(variance_floor, mass_floor)
    sharp = sharpnesses(sharpness, iters)
    mean = None
    for iteration, inverse in enumerate(inverse_temps(inverse_temp, iters)):
        share = coupling * activations.unsqueeze(-1)  # [B, I, J]
        gaussians = _m_step(share, votes, mean, momentum, floors, covariance == "full")
        mean = gaussians.mean  # [B, J, D]
        # The sum over h of beta_u + ln sigma_h, with sigma the deviation: half of the logarithm of the variance.
        cost = (votes.shape[-1] * beta_u + 0.5 * gaussians.log_det) * share.sum(dim=1)  # [B, J]
        if load is not None:
            cost = cost / load.unsqueeze(-1)  # [B, J]
        activity = inverse * (beta_a - cost)  # [B, J]
        extras = {"variance": gaussians.variance, "cost": cost, "activity": activity}
        yield Step(logits, coupling, mean, activity.sigmoid(), extras)
        if iteration < iters - 1:
            density = _log_density(votes, gaussians)  # [B, I, J]
            logits = F.logsigmoid(activity).unsqueeze(1) + sharp[iteration] * density  # [B, I, J]
            coupling = softmax(logits, background=background)  # [B, I, J]


em_routing = routing_of(em_steps)
# The options of EM routing that have a default, and the defaults.
EM_OPTIONS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(em_steps).parameters.items()
    if parameter.default is not parameter.empty
}
