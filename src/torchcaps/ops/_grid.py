"""What the compiled kernels over a grid share: the window as numbers, its checks, and a dense layer as a grid."""

from __future__ import annotations

from typing import NamedTuple, get_args

from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops.conv import Competition, Window
from torchcaps.types import Capsules

# The kernels number cells and positions with 32 bits: Edge in csrc/grid/kernels.h.
MAX_CELLS = 2**31 - 1


class GridSizes(NamedTuple):
    """The sizes of a call, in the order of GridSizes in csrc/grid/launch.h.

    A vote is the product of a pose [vote_rows, inner] and a matrix [inner, vote_columns].
    """

    batch: int
    height: int
    width: int
    types: int
    rows: int
    columns: int
    kernel_height: int
    kernel_width: int
    stride: int
    parents: int
    vote_rows: int
    inner: int
    vote_columns: int
    shared: int
    competition: int
    start_types: int

    @property
    def positions(self) -> int:
        """Number of positions of the kernel."""
        return self.rows * self.columns

    @property
    def out_dim(self) -> int:
        """Pose size of the parents."""
        return self.vote_rows * self.vote_columns

    @property
    def vote_flops(self) -> int:
        """Floating-point operations of all votes."""
        children = self.batch * self.positions * self.kernel_height * self.kernel_width * self.types
        return 2 * children * self.parents * self.out_dim * self.inner

    def groups(self, lanes: int) -> int:
        """Return the number of groups of samples, one sample per vector lane."""
        return (self.batch + lanes - 1) // lanes


def window_numbers(window: Window, start_types: bool = False) -> list[int]:
    """Return kernel height and width, stride, competition, start and kind of pose as numbers."""
    competition = get_args(Competition).index(window.competition)
    return [*window.kernel, window.stride, competition, int(start_types), int(window.pose == "matrix")]


def dense_grid(children: Capsules, weight: Tensor, start_types: bool = False) -> tuple[Capsules, Tensor, list[int]]:
    """Return a dense layer as a grid of one child per cell, its weight, and a window that covers the grid.

    Poses [B, I, P] become [B, I, 1, 1, P]; a shared weight [J, P, D] becomes [1, J, P, D].
    """
    poses = children.poses[:, :, None, None]  # [B, I, 1, 1, P]
    activations = children.activations[:, :, None, None]  # [B, I, 1, 1]
    weight = weight.unsqueeze(0) if weight.dim() == 3 else weight
    return Capsules(poses, activations), weight, [children.poses.shape[1], 1, 1, 0, int(start_types), 0]


def check_grid(poses: Tensor, activations: Tensor, weight: Tensor, offsets: Tensor | None, window: list[int]) -> None:
    """Raise unless poses [B, H, W, I, P], activations, weight, offsets and the numbers of a window belong together."""
    if poses.dim() != 5 or not poses.shape[3]:
        raise ShapeError(f"poses: expected [B, H, W, I, P] with at least one child type, got {tuple(poses.shape)}")
    _native.check_shape("activations", activations, poses.shape[:4])
    if len(window) != 6 or min(window[:3]) < 1 or window[3] not in (0, 1, 2) or not set(window[4:]) <= {0, 1}:
        raise ConfigError(
            "window: expected kernel height and width, stride, competition from 0 to 2, and 0 or 1 for the start and "
            f"for matrices, got {window}"
        )
    kernel = tuple(window[:2])
    check_kernel(poses, kernel)
    types, size, places = poses.shape[3], poses.shape[4], kernel[0] * kernel[1]
    if weight.dim() != 4 or weight.shape[0] not in (types, types * places) or not weight.shape[1]:
        raise ShapeError(f"weight: expected [{types * places} or {types}, J, ...], got {tuple(weight.shape)}")
    inner, columns = weight.shape[2:]
    if window[5] and (inner != columns or size != inner * inner):
        raise ShapeError(f"weight: expected square matrices for poses of size {size}, got {tuple(weight.shape)}")
    if not window[5] and inner != size:
        raise ShapeError(f"poses: expected pose size {inner}, got {tuple(poses.shape)}")
    if offsets is not None and weight.shape[3] < 2 - window[5]:
        raise ShapeError(f"offsets: expected poses of at least two entries, got {tuple(weight.shape)}")
    _native.check_shape("offsets", offsets, [places, 2])


def check_kernel(poses: Tensor, kernel: tuple[int, ...]) -> None:
    """Raise ShapeError unless a kernel lies within the grid of poses [B, H, W, I, P], and its cells can be numbered."""
    grid = tuple(poses.shape[1:3])
    if kernel[0] > grid[0] or kernel[1] > grid[1]:
        raise ShapeError(f"window: expected a kernel within the grid {grid}, got {kernel}")
    if grid[0] * grid[1] > MAX_CELLS:
        raise ShapeError(f"poses: expected a grid of at most {MAX_CELLS:,} cells, got {tuple(poses.shape)}")


def grid_sizes(poses: Tensor, weight: Tensor, window: list[int]) -> GridSizes:
    """Return the sizes of a call whose arguments have been checked."""
    kernel_height, kernel_width, stride, competition, start_types, matrix = window
    batch, height, width, types = poses.shape[:4]
    children, parents, inner, vote_columns = weight.shape
    return GridSizes(
        batch=batch,
        height=height,
        width=width,
        types=types,
        rows=(height - kernel_height) // stride + 1,
        columns=(width - kernel_width) // stride + 1,
        kernel_height=kernel_height,
        kernel_width=kernel_width,
        stride=stride,
        parents=parents,
        vote_rows=inner if matrix else 1,
        inner=inner,
        vote_columns=vote_columns,
        shared=int(children == types and kernel_height * kernel_width > 1),
        competition=competition,
        start_types=start_types,
    )
