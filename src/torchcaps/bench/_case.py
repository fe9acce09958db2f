"""What a benchmark is: contenders that do the same work, and the points at which they are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchcaps._registry import Registry

Point = Mapping[str, int]
# What a contender can do at a point, ready to be called again and again: `forward`, `forward+backward`, `step`.
Tasks = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Contender:
    """One way to do the work: `prepare` makes inputs and parameters for a point and gives the tasks.

    `needs` estimates the memory in bytes at a point: where the machine has less, the contender is reported, not run.
    `flops` counts the floating-point operations of its last task, where a rate means something. `compiled` says that
    the first call at a point builds code, so that a smaller point cannot stand in to warm it up.
    """

    name: str
    prepare: Callable[[Point], Tasks]
    needs: Callable[[Point], float] = lambda point: 0.0
    flops: Callable[[Point], float] | None = None
    compiled: bool = False


@dataclass(frozen=True)
class Case:
    """A benchmark: the first contender is ours, the first point is the one that the headline speaks of.

    `check` holds the fast twin to its reference before anything is measured: it raises AssertionError where they
    differ. `quick` are the points of a short run; `memory` says whether peak memory is measured.
    """

    title: str
    contenders: tuple[Contender, ...]
    points: tuple[Point, ...]
    quick: tuple[Point, ...]
    check: Callable[[], None]
    memory: bool = True

    def contender(self, name: str) -> Contender:
        """The contender of this name."""
        return next(contender for contender in self.contenders if contender.name == name)


CASES: Registry[Case] = Registry("benchmark")


def around(base: Point, **axes: tuple[int, ...]) -> tuple[Point, ...]:
    """The base point, then one axis at a time moved away from it.

    >>> around({"batch": 2, "iters": 3}, iters=(1, 3))
    ({'batch': 2, 'iters': 3}, {'batch': 2, 'iters': 1})
    """
    moved = [{**base, axis: value} for axis, values in axes.items() for value in values if value != base[axis]]
    return (dict(base), *moved)
