"""Data types of the library: Capsules between layers, Routed as result of a routing, Trace of its iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree

from torchcaps.errors import ShapeError

# Called with (done, total) as work proceeds.
Progress = Callable[[int, int], None]


def _shape(value: object) -> str:
    """Return the shape of a tensor; export and vmap put other values into the same classes."""
    return str(list(value.shape)) if isinstance(value, Tensor) else repr(value)


class Capsules(NamedTuple):
    """Capsules of a batch: a set of them, or a grid of positions with the same types of capsules.

    Args:
        poses: Pose of each capsule. A 4x4 pose matrix is stored flat, P = 16.
        activations: Activation of each capsule, in [0, 1].

    Shape:
        poses: [B, I, P] or [B, H, W, I, P]; activations: [B, I] or [B, H, W, I]. The grid of a signal has one axis,
        [B, T, I, P], that of a volume three.

    Example:
        >>> grid = Capsules(torch.zeros(2, 6, 6, 32, 8), torch.zeros(2, 6, 6, 32))
        >>> grid.flatten().poses.shape
        torch.Size([2, 1152, 8])
    """

    poses: Tensor
    activations: Tensor

    def __repr__(self) -> str:
        return f"Capsules(poses {_shape(self.poses)}, activations {_shape(self.activations)})"

    def flatten(self) -> Capsules:
        """Flatten a grid to a set, position by position.

        Shape:
            Returns poses [B, H*W*I, P], activations [B, H*W*I].

        Returns:
            The same capsules; a set is returned unchanged.

        Raises:
            ShapeError: If the poses have fewer than 3 axes or more than 6.
        """
        if self.poses.dim() == 3:
            return self
        if self.poses.dim() not in (4, 5, 6):
            raise ShapeError(
                f"poses: expected [B, I, P] or [B, H, W, I, P], got {tuple(self.poses.shape)} ({self.poses.dim()} axes)"
            )
        return Capsules(self.poses.flatten(1, -2), self.activations.flatten(1))


class Routed(NamedTuple):
    """The result of a routing.

    Args:
        poses: Poses of the parents.
        activations: Activations of the parents.
        coupling: Coupling of the last iteration.

    Shape:
        poses: [B, J, D]; activations: [B, J]; coupling: [B, I, J].
    """

    poses: Tensor
    activations: Tensor
    coupling: Tensor

    def __repr__(self) -> str:
        shapes = (f"{name} {_shape(value)}" for name, value in zip(self._fields, self, strict=True))
        return f"Routed({', '.join(shapes)})"

    @property
    def capsules(self) -> Capsules:
        """The parents as capsules."""
        return Capsules(self.poses, self.activations)


@dataclass(frozen=True)
class Trace:
    """Every iteration of a routing, stacked along a first axis R.

    Args:
        algorithm: Name of the routing.
        votes: Predictions of every child for every parent.
        logits: Argument of the softmax over the parents.
        coupling: Share of each child that goes to each parent.
        poses: Poses of the parents.
        activations: Activations of the parents.
        extras: Quantities of a single algorithm, by name (`variance`, `order`, ...).

    Shape:
        votes: [B, I, J, D]; logits and coupling: [R, B, I, J]; poses: [R, B, J, D]; activations: [R, B, J].
    """

    algorithm: str
    votes: Tensor  # [B, I, J, D]
    logits: Tensor  # [R, B, I, J]
    coupling: Tensor  # [R, B, I, J]
    poses: Tensor  # [R, B, J, D]
    activations: Tensor  # [R, B, J]
    extras: dict[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Trace({self.algorithm}, iters={self.iters}, votes {_shape(self.votes)}, poses {_shape(self.poses)})"

    @property
    def iters(self) -> int:
        """Number of iterations R."""
        return self.poses.shape[0]

    @property
    def routed(self) -> Routed:
        """The result of the last iteration."""
        return Routed(self.poses[-1], self.activations[-1], self.coupling[-1])

    @staticmethod
    def join(traces: Sequence[Trace]) -> Trace:
        """Join the traces of successive iterations.

        Args:
            traces: Traces in order.

        Returns:
            One trace of all iterations, with the votes of the last one.
        """
        last = traces[-1]
        names = ("logits", "coupling", "poses", "activations")
        return replace(
            last,
            **{name: torch.cat([getattr(trace, name) for trace in traces]) for name in names},
            extras={name: torch.cat([trace.extras[name] for trace in traces]) for name in last.extras},
        )


def _register_for_saving() -> None:
    """Let torch.save with weights_only and torch.export.save write and read these classes."""
    torch.serialization.add_safe_globals([Capsules, Routed, Trace])
    # A private function: without it models still export, but the exported program cannot be saved.
    register = getattr(_pytree, "_register_namedtuple", None)
    if register is not None:
        for kind in (Capsules, Routed):
            register(kind, serialized_type_name=f"torchcaps.{kind.__name__}")


_register_for_saving()
