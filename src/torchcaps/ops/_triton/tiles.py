"""Tile sizes of the Triton kernels by the shape of a layer: a table, so that nothing is tuned at run time.

The bounds are those of all targets from compute capability 8.0 on: 65,536 registers of 32 bits per multiprocessor, at
most 255 per thread, and 48 KB of shared memory that a program gets without asking for more.
"""

from __future__ import annotations

from typing import NamedTuple

# Programs that keep a large GPU busy: 132 multiprocessors (H100) with eight programs each.
PROGRAMS = 1056
# Tiles [R, J, D] that are alive at the same time in `accumulate`: what the votes are compared with, the votes, and the
# sums; with Gaussians also their precision and the sums of squares; with gradients those of the sums.
LIVE = {("attend", "sum"): 4, ("attend", "pull"): 5, ("gauss", "sum"): 6, ("gauss", "pull"): 8}
# Registers of a thread that tiles may fill. Addresses, masks and reductions take about as many again: with 64, no
# kernel needs more than 255 on any target, and two programs of 256 threads fit on a multiprocessor.
REGISTERS = 64
# Registers of a thread that the compiler may use, by warps: three programs of 128 threads fit on a multiprocessor, two
# of 256. Without a bound it aims at more programs, and stores some values in memory for them on compute capability 10.
MOST_REGISTERS = {1: 168, 2: 168, 4: 168, 8: 128, 16: 128}
# Threads of a program. A reduction over parents passes through shared memory once per warp, so that few are better.
WARPS = tuple(MOST_REGISTERS)
# Entries of one tile [R, J, D] or [P, J, D] that 16 warps hold with at most 32 entries per thread.
LARGEST = 16 * 32 * 32
# Rows of a tile. More would leave too few programs for a batch of 128 samples.
MOST_ROWS = 16


class Tiles(NamedTuple):
    """Tile of a program: a first axis (rows, or entries of a child's pose), parents, and the entries of a vote."""

    first: int
    parents: int
    vote_rows: int
    columns: int
    warps: int

    @property
    def entries(self) -> int:
        """Number of entries of a tile."""
        return self.first * self.parents * self.vote_rows * self.columns


def power_of_2(number: int) -> int:
    """Return the smallest power of 2 that is not below a number.

    Args:
        number: The number.

    Returns:
        The power.

    Example:
        >>> power_of_2(10)
        16
    """
    return 1 << max(0, number - 1).bit_length()


def accumulate_tiles(rows: int, parents: int, vote_rows: int, columns: int, live: int) -> Tiles:
    """Return the tile of `accumulate`: as many rows as registers hold.

    Args:
        rows: Number of rows: samples times positions.
        parents: Number of parents.
        vote_rows: Rows of a vote: 1 for vectors.
        columns: Columns of a vote.
        live: Number of tiles that are alive at the same time; see `LIVE`.

    Returns:
        The tile.

    Example:
        >>> accumulate_tiles(128, 10, 1, 16, LIVE["attend", "sum"])
        Tiles(first=8, parents=16, vote_rows=1, columns=16, warps=4)
    """
    wide, high, low = (power_of_2(size) for size in (parents, vote_rows, columns))
    one = wide * high * low
    each = _entries_per_thread(live)
    # Few warps make barriers cheap; a wide layer takes more than four of them, for a single row.
    first = max(1, min(MOST_ROWS, power_of_2(rows), 4 * 32 * each // one))
    return Tiles(first, wide, high, low, _warps(first * one, each))


def spread_tiles(inner: int, parents: int, vote_rows: int, columns: int) -> Tiles:
    """Return the tile of `spread`: the matrices of a child and their gradient, both held by the program.

    Args:
        inner: Rows of a matrix.
        parents: Number of parents.
        vote_rows: Rows of a vote: 1 for vectors.
        columns: Columns of a vote.

    Returns:
        The tile.

    Example:
        >>> spread_tiles(8, 10, 1, 16)
        Tiles(first=8, parents=16, vote_rows=1, columns=16, warps=4)
    """
    deep, wide, high, low = (power_of_2(size) for size in (inner, parents, vote_rows, columns))
    return Tiles(deep, wide, high, low, _warps(deep * wide * high * low, _entries_per_thread(4)))


def too_large(inner: int, parents: int, vote_rows: int, columns: int) -> str | None:
    """Return the reason why the votes of a child do not fit into a program, or None."""
    entries = spread_tiles(inner, parents, vote_rows, columns).entries
    if entries <= LARGEST:
        return None
    return f"the matrices of a child fill a tile of {entries:,} entries, the kernel has up to {LARGEST:,}"


def _entries_per_thread(live: int) -> int:
    """Return the largest power of 2 of which `live` fit into the registers."""
    return power_of_2(REGISTERS // live + 1) // 2


def _warps(entries: int, each: int) -> int:
    return next((warps for warps in WARPS if entries <= warps * 32 * each), WARPS[-1])
