"""A dense or convolutional layer as the Triton kernels see it: children in cells, a kernel over them, and parents."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops.conv import Window
from torchcaps.types import Capsules


class LayerSizes(NamedTuple):
    """Sizes of a layer. A vote is the product of a pose [vote_rows, inner] and a matrix [inner, columns]."""

    batch: int
    grid: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int
    types: int
    parents: int
    vote_rows: int
    inner: int
    columns: int

    @property
    def positions(self) -> tuple[int, ...]:
        """Number of positions of the kernel along each axis."""
        return tuple((side - size) // self.stride + 1 for side, size in zip(self.grid, self.kernel, strict=True))

    @property
    def samples_positions(self) -> int:
        """Number of positions of a sample."""
        return math.prod(self.positions)

    @property
    def rows(self) -> int:
        """Number of positions of all samples."""
        return self.batch * self.samples_positions

    @property
    def cells(self) -> int:
        """Number of cells of the grid."""
        return math.prod(self.grid)

    @property
    def places(self) -> int:
        """Number of places of the kernel."""
        return math.prod(self.kernel)

    @property
    def children(self) -> int:
        """Number of children that a position sees."""
        return self.places * self.types

    @property
    def size(self) -> int:
        """Pose size of the children."""
        return self.vote_rows * self.inner

    @property
    def out_dim(self) -> int:
        """Pose size of the parents."""
        return self.vote_rows * self.columns

    @property
    def is_grid(self) -> bool:
        """Whether cells have to be looked up; otherwise the kernel covers the grid, in one position."""
        return self.grid != self.kernel

    @property
    def disjoint(self) -> bool:
        """Whether no two positions see the same child."""
        axes = zip(self.kernel, self.positions, strict=True)
        return all(size <= self.stride or count == 1 for size, count in axes)

    @property
    def vote_flops(self) -> int:
        """Floating-point operations of all votes."""
        return 2 * self.rows * self.children * self.parents * self.out_dim * self.inner


class Layer(NamedTuple):
    """Children and weight of one layer, with a single axis for the cells of a grid.

    Args:
        poses: [B, N, I, S].
        activations: [B, N, I].
        weight: [K*K*I or I, J, p, q].
        offsets: [K*K, axes], or None.
        window: Grid, kernel and stride, then 1 for pose matrices: `sizes_of` reads them.
        across: Whether the parents of all positions that see a child compete for it.
        positions: Shape of the positions, empty in a dense layer.
        alone: Whether they do so for each type of parents by itself; the kernels then take one type at a time.
    """

    poses: Tensor
    activations: Tensor
    weight: Tensor
    offsets: Tensor | None
    window: list[int]
    across: bool
    positions: tuple[int, ...]
    alone: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """Type of the sums: float32 for 16 bits."""
        return torch.promote_types(torch.promote_types(self.poses.dtype, self.weight.dtype), torch.float32)

    def shape(self, tensor: Tensor) -> Tensor:
        """Return a result [B, positions, ...] with the axes of the positions."""
        return tensor.unflatten(1, self.positions) if self.positions else tensor.squeeze(1)

    def flat(self, tensor: Tensor | None) -> Tensor | None:
        """Return a tensor of parents with one axis for the positions: the inverse of `shape`."""
        if tensor is None:
            return None
        return tensor.flatten(1, len(self.positions)) if self.positions else tensor.unsqueeze(1)


def dense_layer(children: Capsules, weight: Tensor) -> Layer:
    """Return a dense layer, weight [I, J, P, D] or [J, P, D], as a grid of one child per cell and one position."""
    poses, activations = children.poses.unsqueeze(2), children.activations.unsqueeze(2)
    weight = weight.unsqueeze(0) if weight.dim() == 3 else weight
    count = poses.shape[1]
    return Layer(poses, activations, weight, None, [count, count, 1, 0], False, ())


def conv_layer(children: Capsules, weight: Tensor, window: Window) -> Layer:
    """Return a convolutional layer: children [B, H, W, I, P], weight [K*K*I or I, J, p, q]."""
    rank = len(window.grid)
    poses, activations = children.poses.flatten(1, rank), children.activations.flatten(1, rank)
    numbers = [*window.grid, *window.kernel, window.stride, int(window.pose == "matrix")]
    across, alone = window.competition != "local", window.competition == "positions"
    return Layer(poses, activations, weight, window.offsets, numbers, across, tuple(window.positions), alone)


def sizes_of(poses: Tensor, weight: Tensor, window: list[int]) -> LayerSizes:
    """Return the sizes of a layer, and raise unless poses [B, N, I, S] and weight [C or I, J, p, q] fit the window."""
    rank = (len(window) - 2) // 2
    if rank < 1 or len(window) != 2 * rank + 2 or min(window[:-1]) < 1 or window[-1] not in (0, 1):
        raise ConfigError(f"window: expected grid, kernel, stride, and 0 or 1 for matrices, got {window}")
    grid, kernel, stride = tuple(window[:rank]), tuple(window[rank:-2]), window[-2]
    if any(side < size for side, size in zip(grid, kernel, strict=True)):
        raise ShapeError(f"window: expected a kernel within the grid {grid}, got {kernel}")
    if poses.dim() != 4 or poses.shape[1] != math.prod(grid) or not poses.shape[2]:
        raise ShapeError(f"poses: expected [B, {math.prod(grid)}, I, P], got {tuple(poses.shape)}")
    types = poses.shape[2]
    children = math.prod(kernel) * types
    if weight.dim() != 4 or weight.shape[0] not in (types, children):
        raise ShapeError(f"weight: expected [{children} or {types}, J, ...], got {tuple(weight.shape)}")
    inner, columns = weight.shape[2:]
    if window[-1] and inner != columns:
        raise ShapeError(f"weight: expected square matrices, got {tuple(weight.shape)}")
    vote_rows = inner if window[-1] else 1
    if poses.shape[3] != vote_rows * inner:
        raise ShapeError(f"poses: expected pose size {vote_rows * inner}, got {tuple(poses.shape)}")
    return LayerSizes(poses.shape[0], grid, kernel, stride, types, weight.shape[1], vote_rows, inner, columns)


def sum_children(layer: Layer, sizes: LayerSizes) -> Tensor:
    """Sum the activations of the children that each position sees: [B, positions], in the type of sums."""
    values = layer.activations.to(layer.dtype).sum(dim=-1).unflatten(1, sizes.grid)  # [B, *grid]
    for axis, size in enumerate(sizes.kernel, 1):
        values = values.unfold(axis, size, sizes.stride)  # [B, *positions so far, ..., size]
    return values.flatten(1 + len(sizes.grid)).sum(dim=-1).flatten(1)  # [B, positions]
