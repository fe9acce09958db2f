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
    matrices = (
        block_matrices(weight) if window.pose == "matrix" else weight.transpose(1, 2).flatten(2)
    )  # [C or I, P, JD]
    table = _Table(window, children, weight.shape[1])

    def run(some: Capsules, load: Tensor | None = None) -> Capsules:
        return _route(some, matrices, window, table, {**given, "load": load})

    return map_samples(run, children, weight, window, {} if load is None else {"load": load})


def _route(children: Capsules, matrices: Tensor, window: Window, table: _Table, given: dict[str, Any]) -> Capsules:
    beta_u, beta_a, load, momentum = (given[name] for name in ("beta_u", "beta_a", "load", "momentum"))
    parents = len(beta_u)
    poses, present = table.gather(children)  # [N, C, P], [N, 1, C]
    share = present / parents if given["start"] == "types" else table.first_coupling(present)  # [N, 1, C]
    votes = _votes(poses, matrices, window, parents)  # [C, N, J*D]
    # The first shares are the same for all parents.
    mass = share.sum(dim=-1, keepdim=True) + given["mass_floor"]  # [N, 1, 1]
    centre = share @ votes.transpose(0, 1) / mass  # [N, 1, J*D]
    votes = votes - centre.transpose(0, 1)  # [C, N, J*D]
    squares = votes * votes  # [C, N, J*D]
    second = (share @ squares.transpose(0, 1) / mass).view(-1, parents, matrices.shape[2] // parents)  # [N, J, D]
    centre, size = centre.view(second.shape), second.shape[2]  # [N, J, D]
    votes, squares = (part.unflatten(2, (parents, -1)).permute(1, 2, 0, 3) for part in (votes, squares))  # [N, J, C, D]
    sharp = sharpnesses(given["sharpness"], given["iters"])
    temps = inverse_temps(given["inverse_temp"], given["iters"])
    # The mean of the iteration before, measured from the centre. At the beginning the mean is zero.
    old, mean, activity = -centre, None, beta_a
    for iteration, inverse in enumerate(temps):
        total = share.sum(dim=-1, keepdim=True)  # [N, J, 1]
        mass = total + given["mass_floor"]  # [N, J, 1]
        rest = centre * (given["mass_floor"] / mass)  # [N, J, D]
        if iteration:
            first, second = ((share.unsqueeze(2) @ part).squeeze(2) / mass for part in (votes, squares))  # [N, J, D]
            mean = first - rest  # [N, J, D]
        else:
            first, mean = rest, None
        if momentum:
            mean = momentum * old + (0 if mean is None else (1 - momentum) * mean)  # [N, J, D]
        variance = second + given["variance_floor"]  # [N, J, D]
        if mean is not None:
            # The sum of share (vote - mean)^2; total / mass is 1 but for the floor.
            variance = variance + mean * (mean * (total / mass) - 2 * first)  # [N, J, D]
            old = mean
        log_det = variance.log().sum(dim=-1)  # [N, J]
        cost = (size * beta_u + 0.5 * log_det) * total.squeeze(2)  # [N, J]
        activity = inverse * (beta_a - (cost if load is None else cost / load.unsqueeze(1)))  # [N, J]
        if iteration < len(temps) - 1:
            precision = sharp[iteration] / variance  # [N, J, D]
            constant = sharp[iteration] * (log_det + size * math.log(2 * math.pi))  # [N, J]
            logits = (squares @ (-0.5 * precision).unsqueeze(3)).squeeze(3)  # [N, J, C]
            if mean is not None:
                constant = constant + (mean * mean * precision).sum(dim=-1)  # [N, J]
                logits = logits + (votes @ (mean * precision).unsqueeze(3)).squeeze(3)  # [N, J, C]
            logits = logits + (F.logsigmoid(activity) - 0.5 * constant).unsqueeze(2)  # [N, J, C]
            share = table.softmax(logits, given["background"]) * present  # [N, J, C]
    poses = centre if mean is None else centre + mean  # [N, J, D]
    return window.unflatten_grid(Capsules(poses, activity.sigmoid()))


def _votes(poses: Tensor, matrices: Tensor, window: Window, parents: int) -> Tensor:
    """Compute the votes [C, N, J*D] of poses [N, C, P]: one product per child, without a transpose of the votes."""
    rows = poses.transpose(0, 1).unflatten(0, (-1, matrices.shape[0]))  # [n, C/n, N, P]
    votes = (rows @ matrices).flatten(0, 1)  # [C, N, J*D]
    if window.offsets is None:
        return votes
    offsets = F.pad(window.offsets.to(votes), (0, matrices.shape[2] // parents - window.rank))  # [K*K, D]
    offsets = offsets.repeat_interleave(poses.shape[1] // len(offsets), dim=0)  # [C, D]
    return votes + offsets.repeat(1, parents).unsqueeze(1)  # [C, N, J*D]


class _Table:
    """The methods `gather` and `softmax` of a window by tables of indices instead of scatters."""

    def __init__(self, window: Window, children: Capsules, parents: int) -> None:
        self.window = window
        self.groups = Groups(window.grid, window.positions, window.kernel, window.stride, children.poses)
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
