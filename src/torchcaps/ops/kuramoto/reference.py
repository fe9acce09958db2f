"""Routing by synchronisation, the definition: oscillators whose phases are points on a sphere."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, check_iters, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm, check_squash, squashed_length
from torchcaps.ops.votes import check_bias, check_votes, dot_votes, sum_votes


def check_kuramoto_options(iters: int, gain: float, step: float) -> None:
    """Raise unless there is at least one iteration, and gain and step are numbers of at least 0.

    Args:
        iters: Number of iterations.
        gain: Factor on the logits.
        step: Step size of the oscillators.
    """
    check_iters(iters)
    for name, value in (("gain", gain), ("step", step)):
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{name}: expected a finite number of at least 0, got {value}")


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide; zero over zero is zero, in value and in gradient."""
    nothing = denominator == 0
    return torch.where(nothing, 0, numerator / torch.where(nothing, 1, denominator))


def direction(vectors: Tensor) -> Tensor:
    """Return vectors [..., D] divided by their length; that of a zero vector is zero."""
    return ratio(vectors, torch.linalg.vector_norm(vectors, dim=-1, keepdim=True))


def turn(phase: Tensor, force: Tensor, step: float) -> Tensor:
    """Kuramoto's update on the sphere: a step along the part of the force that does not change the length.

    Args:
        phase: Phases of the oscillators.
        force: Force on each oscillator.
        step: Step size.

    Returns:
        The new phases.
    """
    tangent = force - (force * phase).sum(dim=-1, keepdim=True) * phase
    return direction(phase + step * tangent)


def kuramoto_steps(
    votes: Tensor,
    *,
    bias: Tensor | None = None,
    omega: Tensor | None = None,
    iters: int = 3,
    gain: float = 4.0,
    step: float = 1.0,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Route by synchronisation: children and parents are oscillators, and a child couples to parents in its phase.

    The phase of a child towards a parent is the direction of its vote, y_ij, and its amplitude the vote's length; the
    phase of a parent is a unit vector x_j. Repeated `iters` times: coupling = softmax over the parents of
    gain y_ij . x_j, uniform at first; field_j = sum_i coupling_ij |votes_ij| y_ij; x_j turns by its own frequency and
    towards the mean of its children, x <- normalise(x + step T(Omega_j x + mean_j)), at first x_j = field_j /
    |field_j|; y_ij turns towards the parent, y <- normalise(y + step T(coupling_ij x_j)). T is the component orthogonal
    to the oscillator, and mean_j = field_j / sum_i coupling_ij |votes_ij|: its length is the order parameter, 1 where
    all children are in phase (Kuramoto 1975; on a sphere Miyato et al. 2025). a_j = |squash(field_j)|, pose_j = a_j
    x_j. One iteration is uniform routing.

    Args:
        votes: Predictions of every child for every parent.
        bias: One more vote for each parent, which is not shared and does not turn.
        omega: Frequencies, of which the antisymmetric part Omega = omega - omega^T counts.
        iters: Number of routing iterations.
        gain: Factor on the logits.
        step: Step size of the oscillators.
        squash: Form of the squash whose length is the activation; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; bias: [J, D]; omega: [J, D, D]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step per iteration, with the extras `order` (the order parameter) and `phase` (of the parents).

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> out = kuramoto_routing(torch.randn(2, 6, 3, 4), iters=3)
        >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
        (torch.Size([2, 3, 4]), True)
    """
    check_votes(votes)
    check_bias(bias, votes)
    check_kuramoto_options(iters, gain, step)
    check_squash(squash)
    parents, size = votes.shape[2:]
    if omega is not None and omega.shape != (parents, size, size):
        raise ShapeError(f"omega: expected {(parents, size, size)}, got {tuple(omega.shape)}")
    amplitude = torch.linalg.vector_norm(votes, dim=-1)  # [B, I, J]
    child = direction(votes)  # [B, I, J, D]
    parent = None
    logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    for iteration in range(iters):
        coupling = softmax(logits)  # [B, I, J]
        weight = coupling * amplitude  # [B, I, J]
        field = sum_votes(weight, child)  # [B, J, D]
        total = weight.sum(dim=1)  # [B, J]
        if bias is not None:
            field, total = field + bias, total + torch.linalg.vector_norm(bias, dim=-1)  # [B, J, D], [B, J]
        mean = ratio(field, total.unsqueeze(-1))  # [B, J, D], as long as the children are of one phase
        if parent is None:
            parent = direction(field)  # [B, J, D]
        else:
            drift = 0 if omega is None else torch.einsum("jde,bje->bjd", omega - omega.mT, parent)  # [B, J, D]
            parent = turn(parent, drift + mean, step)  # [B, J, D]
        activations = squashed_length(field, form=squash)  # [B, J]
        extras = {"order": torch.linalg.vector_norm(mean, dim=-1), "phase": parent}
        yield Step(logits, coupling, activations.unsqueeze(-1) * parent, activations, extras)
        if iteration < iters - 1:
            child = turn(child, coupling.unsqueeze(-1) * parent.unsqueeze(1), step)  # [B, I, J, D]
            logits = gain * dot_votes(child, parent)  # [B, I, J]


kuramoto_routing = routing_of(kuramoto_steps)
