"""Pieces of a batch whose votes fit into a given memory: samples, rows of positions of one sample, or children."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops.conv import Window

# Megabytes of votes by device type: on a CPU they stay in its caches, elsewhere they occupy the whole device.
DEFAULT_MB = {"cpu": 1.0}
OTHER_MB = 32.0
# From how many pieces on `auto` takes `recompute`: below, all votes together need little memory.
WORTH = 4
VARIABLE = "TORCHCAPS_VOTES_MB"


def _check(name: str, megabytes: float) -> float:
    if not 0 < megabytes < math.inf:
        raise ConfigError(f"{name}: expected a finite number above 0, got {megabytes}")
    return megabytes


def _initial() -> float | None:
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    try:
        return _check(VARIABLE, float(text))
    except ValueError:
        raise ConfigError(f"{VARIABLE}: expected a number of megabytes above 0, got '{text}'") from None


_megabytes = _initial()


def set_votes_memory(megabytes: float | None) -> None:
    """Set how many megabytes of votes the backend `recompute` computes at a time.

    A training step needs a small multiple of it beside its inputs and gradients, 2 to 16 times by algorithm. Less saves
    memory, more makes larger matrix products. At least one sample is computed at a time; of a convolution whose rows of
    parents do not compete with each other, at least one row. Compiled kernels (`cpu`, `triton`) do not need it.

    Args:
        megabytes: Size of the votes, or None for the default: 1 on a CPU, 32 on other devices, or the value of the
            environment variable TORCHCAPS_VOTES_MB.

    Raises:
        ConfigError: If it is not a finite number above 0.

    Example:
        >>> set_votes_memory(64)
        >>> set_votes_memory(None)
    """
    global _megabytes
    _megabytes = _initial() if megabytes is None else _check("megabytes", megabytes)


def votes_bytes(device: torch.device) -> int:
    """Return how many bytes of votes are computed at a time on a device."""
    megabytes = DEFAULT_MB.get(device.type, OTHER_MB) if _megabytes is None else _megabytes
    return int(megabytes * 2**20)


class Piece(NamedTuple):
    """A part of a batch, and in a convolution of its rows of positions.

    Args:
        samples: The samples.
        rows: The rows of positions.
        window: The window over the children that these rows see, None in a dense layer.
        whole: The window over all children.
    """

    samples: slice
    rows: slice = slice(None)
    window: Window | None = None
    whole: Window | None = None

    def children(self, grid: Tensor) -> Tensor:
        """Return the part of the children [B, ...] or [B, H, W, ...] that this piece reads, a view."""
        if self.window is None:
            return grid[self.samples]
        first = self.rows.start * self.window.stride
        return grid[self.samples, first : first + self.window.grid[0]]

    def parents(self, grid: Tensor) -> Tensor:
        """Return the part of the parents [B, ...] or [B, H', W', ...] that this piece computes, a view."""
        return grid[self.samples] if self.window is None else grid[self.samples, self.rows]

    def samples_of(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor [B, ...] or [B*H'*W', ...] that belongs to this piece, a view."""
        if self.whole is None:
            return tensor[self.samples]
        return tensor.unflatten(0, (-1, *self.whole.positions))[self.samples, self.rows]

    def flat(self, part: Tensor) -> Tensor:
        """Return what `samples_of` returns with one axis for the samples, as the reference takes it."""
        return part if self.window is None else part.flatten(0, self.window.rank)


def worth_recomputing(poses: Tensor, weight: Tensor, window: Window | None) -> bool:
    """Return whether the votes of a batch are so large that pieces of it need much less memory."""
    return poses.shape[0] * _bytes_per_sample(poses, weight, window) > WORTH * votes_bytes(poses.device)


def split_batch(poses: Tensor, weight: Tensor, window: Window | None, limit: int) -> list[Piece]:
    """Split a batch into pieces whose votes take at most `limit` bytes, or which are as small as the routing allows.

    Rows of positions can be computed apart where no child is shared between them, or where its parents at different
    positions do not compete for it.
    """
    each = max(1, _bytes_per_sample(poses, weight, window))
    count = max(1, limit // each)
    samples = [slice(start, min(start + count, len(poses))) for start in range(0, len(poses), count)]
    if window is None:
        return [Piece(some) for some in samples]
    height = window.positions[0]
    apart = window.competition == "local" or window.stride >= window.kernel[0]
    some_rows = max(1, limit // (each // height or 1)) if apart and each > limit else height
    pieces: list[Piece] = []
    for some in samples:
        for first in range(0, height, some_rows):
            rows = slice(first, min(first + some_rows, height))
            seen = (rows.stop - rows.start - 1) * window.stride + window.kernel[0]
            pieces.append(Piece(some, rows, replace(window, grid=(seen, *window.grid[1:])), window))
    return pieces


def split_children(children: int, values: int, like: Tensor, *, tensors: int = 8) -> Iterator[slice]:
    """Split the children of a dense layer into pieces that fit into the memory of votes.

    Args:
        children: Number of children.
        values: How many values the largest tensor of a piece has for each child.
        like: A tensor of the device and type of the values.
        tensors: How many tensors of that size are in memory at a time.

    Returns:
        The pieces, at least one child each.
    """
    count = max(1, votes_bytes(like.device) // max(1, tensors * values * like.element_size()))
    return (slice(start, min(start + count, children)) for start in range(0, children, count))


def _bytes_per_sample(poses: Tensor, weight: Tensor, window: Window | None) -> int:
    size = max(4, torch.promote_types(poses.dtype, weight.dtype).itemsize) * weight.shape[-3]
    if window is None:
        return poses.shape[-2] * weight.shape[-1] * size
    out_dim = poses.shape[-1] if window.pose == "matrix" else weight.shape[-1]
    return math.prod(window.positions) * math.prod(window.kernel) * poses.shape[-2] * out_dim * size


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which autocast changes no type; the device `meta` has no autocast.

    Args:
        device: Device of the tensors.

    Returns:
        The context.

    Example:
        >>> with without_autocast(torch.device("meta")):
        ...     torch.ones(2, device="meta").dtype
        torch.float32
    """
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
