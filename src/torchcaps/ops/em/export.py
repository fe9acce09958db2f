"""EM routing over a grid as matrix products, the form that exported graphs run fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._export import map_samples
from torchcaps.ops._groups import Groups
from torchcaps.ops._iterations import Background
from torchcaps.ops.conv import Window
from torchcaps.ops.em.reference import EM_OPTIONS, Covariance
from torchcaps.ops.em.schedules import inverse_temps, sharpnesses
from torchcaps.ops.votes import block_matrices
from torchcaps.types import Capsules

# Most numbers in the votes of a block of parents.
BLOCK = 2**20


def unsupported(
    children: Capsules, weight: Tensor, *, window: Window, covariance: Covariance = "diagonal", **params: Any
) -> str | None:
    """Return the reason why this form does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        covariance: Form of the covariance.
        **params: Other options of the routing.

    Returns:
        The reason.
    """
    if not torch.compiler.is_exporting():
        return "it serves exported graphs; use backend='auto'"
    if covariance != "diagonal":
        return "it has a diagonal covariance"
    for name in ("logits", "softmax"):
        if name in params:
            return f"it has no option '{name}'"
    return None


def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    load: Tensor | None = None,
    **options: Any,
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through weight [K*K*I, J, p, p] or [I, J, p, p]; see `em_routing`.

    There are N = B*H'*W' positions with C = K*K*I children each. The moments of the M-step are products of the shares
    with the votes and their squares, the logits of the E-step are products of both with [N, J, D, 1]. The votes are
    measured from the first mean: no variance is a difference of large numbers, and of the first E-step one product is
    left.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: How the kernel lies on the grid.
        beta_u: Cost of describing a child [J].
        beta_a: Cost of leaving a parent inactive [J].
        load: Number that the cost is divided by [N].
        **options: Further options of `em_routing`.

    Returns:
        The parents.
    """
    given = {**EM_OPTIONS, **options, "beta_u": beta_u, "beta_a": beta_a}
    # Constants of the graph, outside of what is repeated for every sample.
    matrices = weight.transpose(1, 2)  # [C or I, P, J, D]
    if window.pose == "matrix":
        matrices = block_matrices(weight).unflatten(2, (weight.shape[1], -1))  # [C or I, P, J, D]
    table = _Table(window, children, weight.shape[1])
    blocks = _blocks(matrices, math.prod(window.positions) * window.places * children.poses.shape[-2])

    def run(some: Capsules, load: Tensor | None = None) -> Capsules:
        return _route(some, blocks, window, table, {**given, "load": load})

    return map_samples(run, children, weight, window, {} if load is None else {"load": load})


def _blocks(matrices: Tensor, children: int) -> list[tuple[slice, Tensor]]:
    """Divide the parents of matrices [C or I, P, J, D] so that the votes of each part fit a cache.

    Args:
        matrices: The matrices of the votes.
        children: Number of children of all positions of a sample.

    Returns:
        The places of some parents, and their matrices [C or I, P, J', D].
    """
    parents, size = matrices.shape[2:]
    step = math.ceil(parents / math.ceil(children * parents * size / BLOCK))
    if step >= parents:
        return [(slice(None), matrices)]
    places = [slice(first, first + step) for first in range(0, parents, step)]
    return [(place, matrices[:, :, place].contiguous()) for place in places]


def _route(
    children: Capsules, parts: list[tuple[slice, Tensor]], window: Window, table: _Table, given: dict[str, Any]
) -> Capsules:
    iters, alone = given["iters"], len(parts) == 1
    poses, present = table.gather(children)  # [N, C, P], [N, 1, C]
    share = present / len(given["beta_u"]) if given["start"] == "types" else table.first_coupling(present)  # [N, 1, C]
    blocks = [_Block(place, matrices, window, given, keep_squares=alone) for place, matrices in parts]
    for iteration in range(iters):
        logits: list[Tensor] = []
        # One block from its votes to its logits, then the next one: its votes are read again while a cache has them.
        for block in blocks:
            if iteration:
                block.update(share if alone else share[:, block.place])
            else:
                block.start(poses, share)
            if iteration < iters - 1:
                logits.append(block.logits())  # [N, J', C]
        if logits:
            share = table.softmax(_join(logits), given["background"]) * present  # [N, J, C]
    activity = _join([block.activity for block in blocks])  # [N, J]
    return window.unflatten_grid(Capsules(_join([block.poses() for block in blocks]), activity.sigmoid()))


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _Block:
    """Some of the parents, J' of them, in all iterations. Only the softmax over the parents joins them to the others.

    The votes are measured from the first mean, the centre.
    """

    def __init__(
        self, place: slice, matrices: Tensor, window: Window, given: dict[str, Any], *, keep_squares: bool
    ) -> None:
        self.place, self.matrices, self.window, self.given = place, matrices, window, given
        # One more array of the size of the votes: of several blocks they are computed again.
        self.keep_squares = keep_squares
        self.beta_u, self.beta_a = (
            given[name] if keep_squares else given[name][place] for name in ("beta_u", "beta_a")
        )
        self.sharp = iter(sharpnesses(given["sharpness"], given["iters"]))
        self.temps = iter(inverse_temps(given["inverse_temp"], given["iters"]))
        # Measured from the centre; None for zero.
        self.mean: Tensor | None = None

    def start(self, poses: Tensor, share: Tensor) -> None:
        """Compute the votes of poses [N, C, P] and the first M-step; its share [N, 1, C] is that of all parents."""
        floor, sizes = self.given["mass_floor"], self.matrices.shape[2:]
        mass = share.sum(dim=-1, keepdim=True) + floor  # [N, 1, 1]
        votes = _votes(poses, self.matrices, self.window)  # [C, N, J'*D]
        centre = share @ votes.transpose(0, 1) / mass  # [N, 1, J'*D]
        self.votes = votes - centre.transpose(0, 1)  # [C, N, J'*D]
        self.centre = centre.unflatten(2, sizes).squeeze(1)  # [N, J', D]
        self.squares = self.votes * self.votes  # [C, N, J'*D]
        second = (share @ self.squares.transpose(0, 1) / mass).unflatten(2, sizes).squeeze(1)  # [N, J', D]
        first = self.centre * (floor / mass)  # [N, J', D]
        # The mean of the iteration before is zero.
        old = -self.centre
        self._m_step(share.sum(dim=-1, keepdim=True), first, second, None, old)

    def update(self, share: Tensor) -> None:
        """Compute the M-step for a share [N, J', C]."""
        total = share.sum(dim=-1, keepdim=True)  # [N, J', 1]
        mass = total + self.given["mass_floor"]  # [N, J', 1]
        if not self.keep_squares:
            self.squares = self.votes * self.votes  # [C, N, J'*D]
        first, second = (
            (share.unsqueeze(2) @ self._by_parent(part)).squeeze(2) / mass for part in (self.votes, self.squares)
        )  # [N, J', D]
        mean = first - self.centre * (self.given["mass_floor"] / mass)  # [N, J', D]
        old = -self.centre if self.mean is None else self.mean
        self._m_step(total, first, second, mean, old)

    def logits(self) -> Tensor:
        """Return the logits [N, J', C] of the E-step."""
        sharp, size = next(self.sharp), self.variance.shape[2]
        precision = sharp / self.variance  # [N, J', D]
        constant = sharp * (self.log_det + size * math.log(2 * math.pi))  # [N, J']
        logits = (self._by_parent(self.squares) @ (-0.5 * precision).unsqueeze(3)).squeeze(3)  # [N, J', C]
        if self.mean is not None:
            constant = constant + (self.mean * self.mean * precision).sum(dim=-1)  # [N, J']
            logits = logits + (self._by_parent(self.votes) @ (self.mean * precision).unsqueeze(3)).squeeze(3)
        return logits + (F.logsigmoid(self.activity) - 0.5 * constant).unsqueeze(2)  # [N, J', C]

    def poses(self) -> Tensor:
        """Return the means [N, J', D]."""
        return self.centre if self.mean is None else self.centre + self.mean

    def _m_step(self, total: Tensor, first: Tensor, second: Tensor, mean: Tensor | None, old: Tensor) -> None:
        """Set mean, variance and activity by the moments of the votes and the sum of the shares [N, J' or 1, 1]."""
        momentum, load = self.given["momentum"], self.given["load"]
        mass = total + self.given["mass_floor"]
        if momentum:
            mean = momentum * old + (0 if mean is None else (1 - momentum) * mean)  # [N, J', D]
        variance = second + self.given["variance_floor"]  # [N, J', D]
        if mean is not None:
            # The sum of share (vote - mean)^2; total / mass is 1 but for the floor.
            variance = variance + mean * (mean * (total / mass) - 2 * first)  # [N, J', D]
        self.mean, self.variance = mean, variance
        self.log_det = variance.log().sum(dim=-1)  # [N, J']
        cost = (variance.shape[2] * self.beta_u + 0.5 * self.log_det) * total.squeeze(2)  # [N, J']
        cost = cost if load is None else cost / load.unsqueeze(1)  # [N, J']
        self.activity = next(self.temps) * (self.beta_a - cost)  # [N, J']

    def _by_parent(self, values: Tensor) -> Tensor:
        """Arrange values of all votes [C, N, J'*D] as [N, J', C, D]."""
        return values.unflatten(2, self.matrices.shape[2:]).permute(1, 2, 0, 3)


def _votes(poses: Tensor, matrices: Tensor, window: Window) -> Tensor:
    """Compute the votes [C, N, J*D] of poses [N, C, P]: one product per child, without a transpose of the votes."""
    parents, size = matrices.shape[2:]
    rows = poses.transpose(0, 1).unflatten(0, (-1, matrices.shape[0]))  # [n, C/n, N, P]
    votes = (rows @ matrices.flatten(2)).flatten(0, 1)  # [C, N, J*D]
    if window.offsets is None:
        return votes
    offsets = F.pad(window.offsets.to(votes), (0, size - window.rank))  # [K*K, D]
    offsets = offsets.repeat_interleave(poses.shape[1] // len(offsets), dim=0)  # [C, D]
    return votes + offsets.repeat(1, parents).unsqueeze(1)  # [C, N, J*D]


class _Table:
    """The methods `gather` and `softmax` of a window by tables of indices instead of scatters."""

    def __init__(self, window: Window, children: Capsules, parents: int) -> None:
        self.window = window
        self.groups = Groups(window.grid, window.positions, window.kernel, window.stride)
        self.seen = torch.tensor(self.groups.seen, device=children.poses.device)  # [H'*W'*K*K]
        # The coupling of equal logits.
        counts = self.groups.counts
        together = {"global": [parents * count for count in counts], "positions": counts}
        shares = 1 / torch.tensor(together.get(window.competition, [parents] * len(counts)))  # [H'*W'*K*K]
        shares = shares.to(children.poses).repeat_interleave(children.poses.shape[-2])
        self.first = shares.view(math.prod(window.positions), 1, -1)  # [H'*W', 1, C]

    def gather(self, children: Capsules) -> tuple[Tensor, Tensor]:
        """Return poses [N, C, P] and activations [N, 1, C] of the children under the kernel at every position."""
        cells = math.prod(self.window.kernel)
        poses, activations = (
            part.flatten(1, self.window.rank).index_select(1, self.seen) for part in children
        )  # [B, H'*W'*K*K, I, P]
        poses = poses.reshape(-1, cells * poses.shape[2], poses.shape[3])  # [N, C, P]
        return poses, activations.reshape(-1, 1, poses.shape[1])  # [N, 1, C]

    def first_coupling(self, present: Tensor) -> Tensor:
        """Return the coupling of equal logits, multiplied by activations [N, 1, C]."""
        return (present.unflatten(0, (-1, len(self.first))) * self.first).flatten(0, 1)  # [N, 1, C]

    def softmax(self, logits: Tensor, background: Background) -> Tensor:
        """Return the coupling [N, J, C] of logits [N, J, C]."""
        alone = self.window.competition == "positions"
        top = logits if alone else logits.amax(dim=1, keepdim=True)  # [N, J or 1, C]
        top = self._over_positions(self.groups.amax, top)  # [N, J or 1, C]
        if background is not None:
            top = torch.maximum(top, torch.as_tensor(background).to(top))
        weights = (logits - top).exp()  # [N, J, C]
        total = weights if alone else weights.sum(dim=1, keepdim=True)  # [N, J or 1, C]
        total = self._over_positions(self.groups.sum, total)  # [N, J or 1, C]
        if background is not None:
            total = total + (background - top).exp()
        return weights / total

    def _over_positions(self, of: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """Return the sum or maximum of values [N, J or 1, C] over all positions that see the same child."""
        if self.window.competition == "local":
            return values
        rows = values.unflatten(2, (self.window.places, -1)).transpose(1, 2)  # [N, K*K, J or 1, I]
        rows = rows.reshape(-1, len(self.groups.seen), math.prod(rows.shape[2:]))  # [B, H'*W'*K*K, M]
        return self._by_parents(of(rows), values)

    def _by_parents(self, rows: Tensor, like: Tensor) -> Tensor:
        """Return rows [B, H'*W'*K*K, M] in the order of values [N, J or 1, C]."""
        rows = rows.reshape(-1, math.prod(self.window.kernel), like.shape[1], rows.shape[2] // like.shape[1])
        return rows.transpose(1, 2).reshape(like.shape)  # [N, J or 1, C]
