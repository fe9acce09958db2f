"""Measures of one routing: entropy of the coupling, change of the logits, the plane of the votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.ops.conv import Window

# Coupling of a child that is missing in the sum over its parents: beyond this, it leaks to one more parent.
LEAK = 1e-3
# A parent is dead if its activation stays below DEAD, and starved if it gets less than STARVED of an even share of
# the coupling.
DEAD, STARVED = 0.05, 0.01


def coupling_entropy(coupling: Tensor, window: Window | None = None) -> Tensor:
    """Return the normalised entropy of the coupling at each iteration.

    The mean over children of -sum_j c_ij ln c_ij / ln n_i, where n_i parents compete for child i: 0 if every child
    couples to one parent, 1 if all coupling is uniform. Coupling that leaks counts as one more parent; coupling that
    sums to more than 1, as some first couplings do, is divided by its sum. Children with a single parent are left out.

    Args:
        coupling: Coupling of every iteration.
        window: Window of a convolutional layer: all positions that see a child compete for it.

    Shape:
        coupling: [R, B, I, J], or [R, B*H'*W', K*K*I, J] with a window; returns [R].

    Returns:
        The entropy of each iteration; NaN if every child has a single parent.

    Example:
        >>> coupling_entropy(torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]]]))
        tensor([0.5000])
    """
    coupling = _one_competition_per_child(coupling.float().clamp(min=0), window)
    total = over_competitors(coupling.sum(dim=-1), window)  # [R, B, I]
    excess = torch.where(total > 1 + LEAK, total, torch.ones_like(total))  # [R, B, I]
    coupling, total = coupling / excess.unsqueeze(-1), total / excess
    entropy = over_competitors(torch.special.entr(coupling).sum(dim=-1), window)  # [R, B, I]
    rest = (1 - total).clamp(min=0)  # [R, B, I]
    positions = over_competitors(torch.ones_like(entropy), window)  # [R, B, I]
    competitors = coupling.shape[-1] * positions  # [R, B, I]
    if bool((rest > LEAK).any()):
        entropy, competitors = entropy + torch.special.entr(rest), competitors + 1
    # A child is listed once per position that sees it, but counts once.
    weight = (competitors > 1) / positions  # [R, B, I]
    relative = entropy / competitors.clamp(min=2).log()  # [R, B, I]
    return (weight * relative).sum(dim=(1, 2)) / weight.sum(dim=(1, 2))


def logit_change(logits: Tensor, window: Window | None = None) -> Tensor:
    """Return the mean absolute change of the logits from each iteration to the next.

    A constant added to all logits of a child changes no coupling, so the mean change over its competing parents is
    subtracted first.

    Args:
        logits: Logits of every iteration.
        window: Window of a convolutional layer, as in `coupling_entropy`.

    Shape:
        logits: [R, B, I, J], or [R, B*H'*W', K*K*I, J] with a window; returns [R-1].

    Returns:
        The change into each iteration after the first.

    Example:
        >>> logit_change(torch.tensor([[[[0.0, 0.0]]], [[[7.0, 9.0]]]]))
        tensor([1.])
    """
    change = _one_competition_per_child(logits[1:].float() - logits[:-1].float(), window)  # [R-1, B, I, J]
    total = over_competitors(change.sum(dim=-1), window)  # [R-1, B, I]
    competitors = change.shape[-1] * over_competitors(torch.ones_like(total), window)  # [R-1, B, I]
    return (change - (total / competitors).unsqueeze(-1)).abs().mean(dim=(1, 2, 3))


def _one_competition_per_child(values: Tensor, window: Window | None) -> Tensor:
    """Return values [R, B, I, J] as [R, B, I*J, 1] where a child chooses for each type of parent by itself."""
    if window is None or window.competition != "positions":
        return values
    return values.flatten(2).unsqueeze(-1)


def over_competitors(values: Tensor, window: Window | None) -> Tensor:
    """Sum values over the positions that compete for the same child.

    Args:
        values: One value per iteration, position and child.
        window: Window of the layer; without one, or with local competition, there is nothing to sum.

    Shape:
        values: [R, B, I]; returns the same shape, the sum repeated at each position.

    Returns:
        The sums.
    """
    if window is None or window.competition == "local":
        return values
    seen = window._grid_index(values.device)  # [H'*W'*K*K]
    types = values.shape[2] // window.places
    flat = values.reshape(values.shape[0], -1, len(seen), types)  # [R, B, H'*W'*K*K, I]
    total = flat.new_zeros(*flat.shape[:2], math.prod(window.grid), types)  # [R, B, H*W, I]
    return total.index_add(2, seen, flat)[:, :, seen].reshape(values.shape)


def plane_of(votes: Tensor, pose: Tensor) -> tuple[Tensor, float]:
    """Return the plane through the origin that holds most of the votes.

    The plane of the two largest singular values. It passes through the origin because routing by agreement compares
    directions; its axes are oriented such that the pose has non-negative coordinates.

    Args:
        votes: Votes of all children for one parent.
        pose: Pose of that parent.

    Shape:
        votes: [I, D]; pose: [D]; returns [D, 2] and a number.

    Returns:
        The plane and the share of the votes' squared norm that lies in it.

    Example:
        >>> plane, kept = plane_of(torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([1.0, 1.0, 5.0]))
        >>> plane.T.tolist(), kept
        ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], 1.0)
    """
    size = votes.shape[-1]
    _, values, directions = torch.linalg.svd(votes, full_matrices=False)  # [n], [n, D]
    plane = votes.new_zeros(size, 2)  # [D, 2]
    rank = min(2, len(values))
    plane[:, :rank] = directions[:rank].T
    signs = (pose @ plane).sign()  # [2]
    plane = plane * torch.where(signs == 0, torch.ones_like(signs), signs)  # [D, 2]
    square = values.square()  # [n]
    return plane, float(square[:2].sum() / square.sum().clamp(min=1e-12))
