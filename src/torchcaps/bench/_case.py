"""Benchmarks: candidates that do the same work, and the points at which they are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchcaps._registry import Registry

Point = Mapping[str, int]
# Functions by task, which can be called repeatedly: `forward`, `forward+backward`, `step`.
Tasks = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Candidate:
    """One implementation of the work.

    Attributes:
        name: Name in tables.
        prepare: Creates inputs and parameters for a point, and returns the tasks.
        memory_needed: Estimated memory in bytes at a point. If the machine has less, the candidate is not run.
        flops: Number of floating-point operations of the last task.
        compiled: Whether the first call at a point compiles code, so that a smaller point cannot warm it up.
    """

    name: str
    prepare: Callable[[Point], Tasks]
    memory_needed: Callable[[Point], float] = lambda point: 0.0
    flops: Callable[[Point], float] | None = None
    compiled: bool = False


@dataclass(frozen=True)
class Case:
    """A benchmark.

    Attributes:
        title: Heading of its table.
        candidates: Implementations; the first is ours.
        points: Sizes; the first is that of the summary.
        quick: Sizes of a short run.
        check: Compares kernels with the reference, and raises AssertionError if they differ.
        memory: Whether peak memory is measured.
    """

    title: str
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    quick: tuple[Point, ...]
    check: Callable[[], None]
    memory: bool = True

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of a name.

        Args:
            name: Name of the candidate.

        Returns:
            The candidate.
        """
        return next(candidate for candidate in self.candidates if candidate.name == name)


CASES: Registry[Case] = Registry("benchmark")


def one_axis_sweep(base: Point, **axes: tuple[int, ...]) -> tuple[Point, ...]:
    """Return the base point, then points that differ from it along one axis.

    Args:
        base: Sizes of the base point.
        **axes: Values along each axis.

    Returns:
        The points, without duplicates of the base.

    Example:
        >>> one_axis_sweep({"batch": 2, "iters": 3}, iters=(1, 3))
        ({'batch': 2, 'iters': 3}, {'batch': 2, 'iters': 1})
    """
    moved = [{**base, axis: value} for axis, values in axes.items() for value in values if value != base[axis]]
    return (dict(base), *moved)
