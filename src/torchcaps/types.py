"""The three things that flow: Capsules between layers, Routed out of a routing, Trace for whoever wants to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ShapeError


class Capsules(NamedTuple):
    """Capsules of a batch: what pose each has, and whether it is there.

    Either a set, `poses [B, I, P]` and `activations [B, I]`, or a grid of positions with the same capsule types at
    each, `poses [B, H, W, I, P]` and `activations [B, H, W, I]`. A 4x4 pose is stored flat, P = 16.

    >>> import torch
    >>> grid = Capsules(torch.zeros(2, 6, 6, 32, 8), torch.zeros(2, 6, 6, 32))
    >>> grid.flatten().poses.shape
    torch.Size([2, 1152, 8])
    """

    poses: Tensor
    activations: Tensor

    def flatten(self) -> Capsules:
        """The same capsules as one set, position by position: [B, H, W, I, P] becomes [B, H*W*I, P]."""
        if self.poses.dim() == 3:
            return self
        if self.poses.dim() != 5:
            raise ShapeError(
                f"poses: expected [B, I, P] or [B, H, W, I, P], got {tuple(self.poses.shape)} ({self.poses.dim()} axes)"
            )
        return Capsules(self.poses.flatten(1, 3), self.activations.flatten(1))


class Routed(NamedTuple):
    """What a routing gives: `poses [B, J, D]`, `activations [B, J]`, and the final `coupling [B, I, J]`."""

    poses: Tensor
    activations: Tensor
    coupling: Tensor

    @property
    def capsules(self) -> Capsules:
        """The parents as capsules, ready for the next layer."""
        return Capsules(self.poses, self.activations)


@dataclass(frozen=True)
class Trace:
    """Every iteration of a routing, stacked along a first axis R, for pictures and diagnostics.

    `logits` are what the softmax over parents was taken of, so the first entry is uniform unless the routing was
    started elsewhere. What only some algorithms have (a variance, an order parameter) is in `extras`, by name.
    """

    algorithm: str
    votes: Tensor  # [B, I, J, D]
    logits: Tensor  # [R, B, I, J]
    coupling: Tensor  # [R, B, I, J]
    poses: Tensor  # [R, B, J, D]
    activations: Tensor  # [R, B, J]
    extras: dict[str, Tensor] = field(default_factory=dict)

    @property
    def iters(self) -> int:
        """How many iterations were kept."""
        return self.poses.shape[0]

    @property
    def routed(self) -> Routed:
        """The result of the last iteration."""
        return Routed(self.poses[-1], self.activations[-1], self.coupling[-1])

    @staticmethod
    def join(traces: Sequence[Trace]) -> Trace:
        """One trace of the iterations of several, which follow each other; its votes are the last ones."""
        last = traces[-1]
        names = ("logits", "coupling", "poses", "activations")
        return replace(
            last,
            **{name: torch.cat([getattr(trace, name) for trace in traces]) for name in names},
            extras={name: torch.cat([trace.extras[name] for trace in traces]) for name in last.extras},
        )
