"""A routing in numbers: how undecided its children are, how far an iteration moved them, where their votes lie."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops.conv import Window

# A child that gives away less than this is said to leak: it has one more parent, for none of the others.
LEAK = 1e-3
# A parent is dead that is never more active than this, and starved with less than this of an even share of coupling.
DEAD, STARVED = 0.05, 0.01


def coupling_entropy(coupling: Tensor, window: Window | None = None) -> Tensor:
    """How undecided children are at each iteration: 0 where each has one parent, 1 where all who compete share evenly.

    The mean over children of -sum_j c_ij ln c_ij / ln n_i, where n_i parents compete for child i: coupling [R, B, I, J]
    gives [R]. Through a `window` they are the parents at all positions that see the child, and coupling is
    [R, B*H'*W', K*K*I, J]. What leaks counts as one more parent. Children with a single parent have nothing to decide
    and are left out; where no other is there, the result is NaN.

    >>> coupling_entropy(torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]]]))
    tensor([0.5000])
    """
    coupling = coupling.float().clamp(min=0)
    entropy = over_competitors(torch.special.entr(coupling).sum(dim=-1), window)  # [R, B, I]
    rest = (1 - over_competitors(coupling.sum(dim=-1), window)).clamp(min=0)  # [R, B, I]
    positions = over_competitors(torch.ones_like(entropy), window)  # [R, B, I]
    competitors = coupling.shape[-1] * positions  # [R, B, I]
    if bool((rest > LEAK).any()):
        entropy, competitors = entropy + torch.special.entr(rest), competitors + 1
    # A child that stands here once for each position that sees it counts once all the same.
    weight = (competitors > 1) / positions  # [R, B, I]
    relative = entropy / competitors.clamp(min=2).log()  # [R, B, I]
    return (weight * relative).sum(dim=(1, 2)) / weight.sum(dim=(1, 2))


def logit_change(logits: Tensor, window: Window | None = None) -> Tensor:
    """How far the logits moved from each iteration to the next: the mean of their absolute changes.

    logits [R, B, I, J] give [R-1]. What is added to all parents that compete for a child changes no coupling, so each
    change is taken less its mean over them.

    >>> logit_change(torch.tensor([[[[0.0, 0.0]]], [[[7.0, 9.0]]]]))
    tensor([1.])
    """
    change = logits[1:].float() - logits[:-1].float()  # [R-1, B, I, J]
    total = over_competitors(change.sum(dim=-1), window)  # [R-1, B, I]
    competitors = change.shape[-1] * over_competitors(torch.ones_like(total), window)  # [R-1, B, I]
    return (change - (total / competitors).unsqueeze(-1)).abs().mean(dim=(1, 2, 3))


def over_competitors(values: Tensor, window: Window | None) -> Tensor:
    """Sums of values [R, B, I] over the positions that compete for the same child, given at each of them.

    Without a window, or with competition at each position alone, there is one of them, and values stay as they are.
    """
    if window is None or window.competition == "local":
        return values
    seen = window._seen(values.device)  # [H'*W'*K*K]
    types = values.shape[2] // (window.kernel[0] * window.kernel[1])
    flat = values.reshape(values.shape[0], -1, len(seen), types)  # [R, B, H'*W'*K*K, I]
    total = flat.new_zeros(*flat.shape[:2], window.grid[0] * window.grid[1], types)  # [R, B, H*W, I]
    return total.index_add(2, seen, flat)[:, :, seen].reshape(values.shape)


def plane_of(votes: Tensor, pose: Tensor) -> tuple[Tensor, float]:
    """The plane through zero in which votes [I, D] are largest, [D, 2], and the share of their squares that lies in it.

    Through zero, since routing by agreement goes by directions; the pose [D] points to the right of it.

    >>> plane, kept = plane_of(torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([1.0, 1.0, 5.0]))
    >>> plane.T.tolist(), kept
    ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], 1.0)
    """
    size = votes.shape[-1]
    _, values, directions = torch.linalg.svd(votes, full_matrices=False)  # [n], [n, D]
    plane = votes.new_zeros(size, 2)  # [D, 2]
    found = min(2, len(values))
    plane[:, :found] = directions[:found].T
    signs = (pose @ plane).sign()  # [2]
    plane = plane * torch.where(signs == 0, torch.ones_like(signs), signs)  # [D, 2]
    square = values.square()  # [n]
    return plane, float(square[:2].sum() / square.sum().clamp(min=1e-12))
