"""EM routing over a grid as matrix products, the form that exported graphs run fast."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._iterations import Background
from torchcaps.ops.conv import Window
from torchcaps.ops.em.reference import MASS_FLOOR, Covariance, Start
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
from torchcaps.types import Capsules


def unsupported(
    children: Capsules, weight: Tensor, *, window: Window, covariance: Covariance = "diagonal", **params: Any
) -> str | None:
    """Return the reason why this form does not compute a case, or None."""
    if not torch.compiler.is_exporting():
        return "it serves exported graphs; use backend='auto'"
    if covariance != "diagonal":
        return "it has a diagonal covariance"
    if window.pose != "matrix":
        return "it has pose matrices"
    return None


def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
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
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through weight [K*K*I, J, p, p] or [I, J, p, p]; see `em_routing`.

    There are N = B*H'*W' positions with C = K*K*I children each. The moments of the M-step are products of the shares
    [N, J, 1, C] with the votes and the squared votes [N, J, C, D]; the logits of the E-step are products of both with
    [N, J, D, 1]. The votes are centred first, so that a variance is not the difference of two large numbers.
    """
    gathered = window.gather(children)
    votes, centre = _centred_votes(gathered.poses, weight, window)  # [N, J, C, D], [N, J, D]
    squares = votes * votes  # [N, J, C, D]
    size, parents = votes.shape[-1], weight.shape[1]
    competition = _Competition(window, parents)
    present = gathered.activations.unsqueeze(1)  # [N, 1, C]
    share = present * (1 / parents if start == "types" else competition.first_coupling(present))  # [N, 1, C]
    share = share.expand(-1, parents, -1)  # [N, J, C]
    sharp = sharpnesses(sharpness, iters)
    # A mean of zero is -centre among the centred votes.
    mean = -centre  # [N, J, D]
    activity = votes.new_zeros(())
    for iteration, inverse in enumerate(inverse_temps(inverse_temp, iters)):
        total = share.sum(dim=-1, keepdim=True)  # [N, J, 1]
        mass = total + mass_floor  # [N, J, 1]
        filled = total / mass  # [N, J, 1], 1 but for the floor
        first, second = ((share.unsqueeze(2) @ moment).squeeze(2) / mass for moment in (votes, squares))  # [N, J, D]
        new = first - (1 - filled) * centre  # [N, J, D]
        mean = (1 - momentum) * new + momentum * mean if momentum else new  # [N, J, D]
        variance = second - 2 * mean * first + mean * mean * filled + variance_floor  # [N, J, D]
        log_det = variance.log().sum(dim=-1)  # [N, J]
        activity = inverse * (beta_a - (size * beta_u + 0.5 * log_det) * total.squeeze(2))  # [N, J]
        if iteration < iters - 1:
            precision = sharp[iteration] / variance  # [N, J, D]
            constant = (mean * mean * precision).sum(dim=-1)  # [N, J]
            constant = constant + sharp[iteration] * (log_det + size * math.log(2 * math.pi))  # [N, J]
            constant = F.logsigmoid(activity) - 0.5 * constant  # [N, J]
            logits = votes @ (mean * precision).unsqueeze(3) + squares @ (-0.5 * precision).unsqueeze(3)  # [N, J, C, 1]
            logits = logits.squeeze(3) + constant.unsqueeze(2)  # [N, J, C]
            share = competition.softmax(logits, background) * present  # [N, J, C]
    return window.unflatten_grid(Capsules(mean + centre, activity.sigmoid()))


def _centred_votes(poses: Tensor, weight: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """Compute the votes [N, J, C, D] of gathered poses [N, C, D] around a point among them, [N, J, D].

    A pose is multiplied as a row of D = p*p numbers with a block-diagonal matrix, p copies of the weight: the D numbers
    of a vote are then adjacent, and the only transpose of all votes moves them as a block.
    """
    children, (parents, side) = poses.shape[1], weight.shape[1:3]
    same = torch.eye(side).to(weight).view(side, 1, 1, side, 1)  # [p, 1, 1, p, 1]
    blocks = weight.transpose(1, 2)[:, None, :, :, None] * same  # [C or I, p, p, J, p, p]
    blocks = blocks.reshape(weight.shape[0], side * side, -1)  # [C or I, D, J*D]
    votes = poses.transpose(0, 1) @ blocks.repeat(children // weight.shape[0], 1, 1)  # [C, N, J*D]
    if window.offsets is not None:
        offsets = F.pad(window.offsets.to(votes), (0, side * side - 2))  # [K*K, D]
        offsets = offsets.repeat_interleave(children // len(offsets), dim=0)  # [C, D]
        votes = votes + offsets.repeat(1, parents).unsqueeze(1)  # [C, N, J*D]
    # The mean of some votes is close enough to all of them.
    centre = votes[::8].mean(dim=0, keepdim=True)  # [1, N, J*D]
    votes, centre = ((part.unflatten(2, (parents, -1)).permute(1, 2, 0, 3)) for part in (votes - centre, centre))
    return votes, centre.squeeze(2)  # [N, J, C, D], [N, J, D]


class _Competition:
    """The softmax of `Window.softmax` by tables of indices instead of scatters."""

    def __init__(self, window: Window, parents: int) -> None:
        self.window, self.parents = window, parents
        # The place of the grid under each place of the kernel at each position, as numbers: an export traces tensors.
        (rows, columns), step, width = window.positions, window.stride, window.grid[1]
        self.seen = [
            (row * step + y) * width + column * step + x
            for row, column in itertools.product(range(rows), range(columns))
            for y, x in itertools.product(*map(range, window.kernel))
        ]  # H'*W'*K*K numbers
        self.positions_of: list[list[int]] = [[] for _ in range(math.prod(window.grid))]
        for entry, place in enumerate(self.seen):
            self.positions_of[place].append(entry)

    def first_coupling(self, present: Tensor) -> Tensor:
        """Return the coupling of equal logits, [N, 1, C], for activations [N, 1, C]."""
        window = self.window
        if window.competition == "local":
            return torch.ones_like(present) / self.parents
        parents = self.parents if window.competition == "global" else 1
        shares = torch.tensor([1 / (parents * len(self.positions_of[place])) for place in self.seen])
        cells, positions = math.prod(window.kernel), math.prod(window.positions)
        shares = shares.to(present).view(positions, 1, cells, 1)  # [H'*W', 1, K*K, 1]
        ones = torch.ones_like(present).unflatten(2, (cells, -1)).unflatten(0, (-1, positions))
        return (ones * shares).flatten(3).flatten(0, 1)  # [N, 1, C]

    def softmax(self, logits: Tensor, background: Background) -> Tensor:
        """Return the coupling [N, J, C] of logits [N, J, C]."""
        alone = self.window.competition == "positions"
        top = logits if alone else logits.amax(dim=1, keepdim=True)  # [N, J or 1, C]
        top = self._over_places(top, torch.amax)  # [N, J or 1, C]
        if background is not None:
            top = torch.maximum(top, torch.as_tensor(background).to(top))
        weights = (logits - top).exp()  # [N, J, C]
        total = self._over_places(weights if alone else weights.sum(dim=1, keepdim=True), torch.sum)
        if background is not None:
            total = total + (background - top).exp()
        return weights / total

    def _over_places(self, values: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
        """Reduce values [N, J or 1, C] over all positions that see the same child."""
        window = self.window
        if window.competition == "local":
            return values
        cells, positions = math.prod(window.kernel), math.prod(window.positions)
        rows = values.unflatten(2, (cells, -1)).unflatten(0, (-1, positions))  # [B, H'*W', J or 1, K*K, I]
        rows = rows.transpose(2, 3).flatten(3).flatten(1, 2)  # [B, H'*W'*K*K, M]
        # One more entry stands for "no further position": neither the largest nor part of a sum.
        padded = F.pad(rows, (0, 0, 0, 1), value=-1e30 if reduce is torch.amax else 0.0)  # [B, H'*W'*K*K + 1, M]
        most = max(map(len, self.positions_of))
        table = [entry for known in self.positions_of for entry in known + [len(self.seen)] * (most - len(known))]
        result = reduce(padded[:, torch.tensor(table)].unflatten(1, (-1, most)), dim=2)  # [B, H*W, M]
        result = result[:, torch.tensor(self.seen)].unflatten(1, (positions, cells)).flatten(0, 1)  # [N, K*K, M]
        return result.unflatten(2, (values.shape[1], -1)).transpose(1, 2).flatten(2)  # [N, J or 1, C]
