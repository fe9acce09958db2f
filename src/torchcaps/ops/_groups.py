"""Sums and maxima over the positions that see the same child, for exported graphs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Groups:
    """The entries of a window that fall on the same place of the grid; an entry is a place of the kernel at a position.

    Totals are read by a table of indices. A scatter would do in PyTorch, but ONNX Runtime adds in parallel where an
    index repeats, so that parts of the sums get lost. The tables are constants: they are made outside of what a graph
    repeats for every sample, where torch.export has none.

    Args:
        grid: Size of the grid along each axis.
        positions: Number of positions of the kernel along each axis.
        kernel: Size of the kernel along each axis.
        stride: Step of the kernel.

    Attributes:
        seen: Place of the grid, row by row, of each entry.
        counts: Number of entries with the same place as each entry.

    Example:
        >>> groups = Groups((3,), (2,), (2,), 1)
        >>> groups.seen, groups.sum(torch.tensor([[[1.0], [2.0], [4.0], [8.0]]])).flatten()
        ([0, 1, 1, 2], tensor([1., 6., 6., 8.]))
    """

    def __init__(self, grid: Sequence[int], positions: Sequence[int], kernel: Sequence[int], stride: int) -> None:
        steps = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
        self.seen = [
            sum((place * stride + inner) * step for place, inner, step in zip(position, places, steps, strict=True))
            for position in itertools.product(*map(range, positions))
            for places in itertools.product(*map(range, kernel))
        ]
        entries: dict[int, list[int]] = {}
        for entry, place in enumerate(self.seen):
            entries.setdefault(place, []).append(entry)
        self.counts = [len(entries[place]) for place in self.seen]
        self.most = max(self.counts)
        # Filled up with the entry itself, which `sum` leaves out.
        table = [
            other
            for entry, place in enumerate(self.seen)
            for other in entries[place] + [entry] * (self.most - len(entries[place]))
        ]
        self.table = torch.tensor(table)  # [E * most]
        real = torch.tensor([float(number < count) for count in self.counts for number in range(self.most)])
        self.real = real.view(-1, self.most, 1)  # [E, most, 1]

    def sum(self, values: Tensor) -> Tensor:
        """Return for each entry the sum of values [B, E, M] over the entries with the same place."""
        return (self._together(values) * self.real.to(values)).sum(dim=2)  # [B, E, M]

    def amax(self, values: Tensor) -> Tensor:
        """Return for each entry the largest of values [B, E, M] over the entries with the same place."""
        return self._together(values).amax(dim=2)  # [B, E, M]

    def _together(self, values: Tensor) -> Tensor:
        return values.index_select(1, self.table.to(values.device)).unflatten(1, (-1, self.most))  # [B, E, most, M]
