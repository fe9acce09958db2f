"""Windows over a grid of capsules: which children a parent sees, and which parents compete for a child."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._groups import Groups
from torchcaps.ops._iterations import Background, parent_softmax
from torchcaps.ops.votes import check_kinds, matrix_vote, vote
from torchcaps.types import Capsules

Competition = Literal["global", "local", "positions"]
PoseKind = Literal["matrix", "vector"]
# One number per axis of a grid: of a signal one, of an image two, of a volume three.
Size = tuple[int, ...]


def check_pose(pose: str) -> None:
    """Raise ConfigError unless `pose` is a kind of pose."""
    if pose not in get_args(PoseKind):
        raise ConfigError(f"pose: expected one of {', '.join(get_args(PoseKind))}, got '{pose}'")


@dataclass(frozen=True, eq=False)
class Window:
    """A kernel that moves over a grid of children; every position has the same J parents.

    A grid has one axis (a signal), two (an image) or three (a volume). Shapes are written for two; `K*K` is the number
    of places of the kernel in every rank.

    Args:
        grid: Size of the grid of children along each axis.
        kernel: Size of the kernel along each axis.
        stride: Step of the kernel along every axis.
        competition: Parents that compete for a child. `global`: all parents at all positions that see it (Hinton et al.
            2018, section 4). `local`: the parents of each position by themselves. `positions`: the positions, for each
            type of parent by itself, as in the authors' released program.
        pose: `matrix` votes by `matrix_vote`, `vector` by `vote`.
        offsets: Added to the first entries of the votes from each place of the kernel, one entry per axis.

    Shape:
        offsets: [K*K, 2], with one column per axis of the grid.

    Raises:
        ConfigError: If an option is unknown or out of range.
        ShapeError: If the grid is smaller than the kernel.

    Example:
        >>> window = Window(grid=(14, 14), kernel=(3, 3), stride=2)
        >>> window.positions
        (6, 6)
        >>> Window(grid=(100,), kernel=(9,), stride=4).positions
        (23,)
    """

    grid: Size
    kernel: Size
    stride: int = 1
    competition: Competition = "global"
    pose: PoseKind = "matrix"
    offsets: Tensor | None = None
    _groups: Groups | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_pose(self.pose)
        if self.stride < 1:
            raise ConfigError(f"stride: expected a count of at least 1, got {self.stride}")
        if not self.kernel or min(self.kernel) < 1 or len(self.kernel) != len(self.grid):
            raise ConfigError(
                f"kernel: expected a count of at least 1 for each axis of the grid {self.grid}, got {self.kernel}"
            )
        if self.competition not in get_args(Competition):
            raise ConfigError(
                f"competition: expected one of {', '.join(get_args(Competition))}, got '{self.competition}'"
            )
        if any(side < size for side, size in zip(self.grid, self.kernel, strict=True)):
            raise ShapeError(f"children: expected a grid of at least {self.kernel}, got {self.grid}")

    def check(self, children: Capsules, weight: Tensor) -> None:
        """Check that a grid of children and a weight fit the window.

        Args:
            children: The lower capsules.
            weight: The matrices of the votes.

        Shape:
            children: poses [B, H, W, I, P], activations [B, H, W, I]; weight: [K*K*I or I, J, p, p] for matrices,
            [K*K*I or I, J, P, D] for vectors.

        Raises:
            ConfigError: If they have different devices, or no floating-point type.
            ShapeError: If their shapes do not fit.
        """
        poses, activations = children
        if poses.dim() != self.rank + 3 or tuple(poses.shape[1:-2]) != tuple(self.grid) or not poses.shape[-2]:
            sides = ", ".join(map(str, self.grid))
            raise ShapeError(f"poses: expected [B, {sides}, I, P] with I > 0, got {tuple(poses.shape)}")
        compiling = torch.compiler.is_compiling()
        if not compiling and activations.shape != poses.shape[:-1]:
            raise ShapeError(f"activations: expected {tuple(poses.shape[:-1])}, got {tuple(activations.shape)}")
        types = poses.shape[-2]
        all_types = types * self.places
        if weight.dim() != 4 or weight.shape[0] not in (types, all_types):
            raise ShapeError(f"weight: expected [{all_types} or {types}, J, ...], got {tuple(weight.shape)}")
        square = self.pose == "matrix"
        inner = weight.shape[2]
        if (square and inner != weight.shape[3]) or poses.shape[-1] != inner ** (2 if square else 1):
            raise ShapeError(
                f"poses: expected pose size {inner}{' squared' * square} for a weight {tuple(weight.shape)}, "
                f"got {tuple(poses.shape)}"
            )
        size = weight.shape[3] * (inner if square else 1)
        if self.offsets is not None and (size < self.rank or self.offsets.shape != (self.places, self.rank)):
            raise ShapeError(
                f"offsets: expected {(self.places, self.rank)} and parents of at least {self.rank} entries, "
                f"got {tuple(self.offsets.shape)} and {size}"
            )
        # Activations that are only looked at would become an input of a compiled graph.
        if not compiling:
            check_kinds(children, weight)

    @property
    def rank(self) -> int:
        """Number of axes of the grid."""
        return len(self.grid)

    @property
    def places(self) -> int:
        """Number of places of the kernel."""
        return math.prod(self.kernel)

    @property
    def positions(self) -> Size:
        """Number of positions of the kernel along each axis."""
        return tuple((side - size) // self.stride + 1 for side, size in zip(self.grid, self.kernel, strict=True))

    def plane(self) -> Window | None:
        """Return a window over a grid of two axes with the same children at every position, or None.

        A signal is a plane of one column. A kernel that covers the whole grid may see it in any shape.

        Returns:
            The window; it is this one for a grid of two axes.
        """
        if self.rank == 2:
            return self
        offsets = self.offsets
        if self.rank == 1:
            offsets = None if offsets is None else F.pad(offsets, (0, 1))  # [K, 2]
            return replace(self, grid=(*self.grid, 1), kernel=(*self.kernel, 1), offsets=offsets)
        if self.kernel != self.grid or offsets is not None:
            return None
        return replace(self, grid=(self.places, 1), kernel=(self.places, 1))

    def children_per_parent(self, types: int, parents: int) -> float:
        """Compute the average number of children per parent.

        Args:
            types: Number of types of children.
            parents: Number of types of parents.

        Returns:
            The average, which counts a child once for all parents that compete for it.
        """
        if self.competition == "local":
            return types * self.places / parents
        seen = 1
        for count, size in zip(self.positions, self.kernel, strict=True):
            seen *= (count - 1) * min(self.stride, size) + size
        # A child belongs once to all types of parents together, or once to each of them.
        whole = parents if self.competition == "global" else 1
        return types * seen / (math.prod(self.positions) * whole)

    def gather(self, children: Capsules) -> Capsules:
        """Gather the children under the kernel at every position.

        Args:
            children: A grid of capsules.

        Shape:
            children: [B, H, W, I, P]; returns [B*H'*W', K*K*I, P].

        Returns:
            One set of children per position.
        """
        types, rank = 1 + self.rank, self.rank
        outer = range(types)
        poses = self._unfold(children.poses)  # [B, H', W', I, P, K, K]
        poses = poses.permute(*outer, *range(types + 2, types + 2 + rank), types, types + 1)  # [B, H', W', K, K, I, P]
        poses = poses.flatten(types, types + rank).flatten(0, rank)  # [B*H'*W', K*K*I, P]
        activations = self._unfold(children.activations)  # [B, H', W', I, K, K]
        activations = activations.permute(*outer, *range(types + 1, types + 1 + rank), types)  # [B, H', W', K, K, I]
        return Capsules(poses, activations.flatten(types, types + rank).flatten(0, rank))

    def prepare(self) -> Window:
        """Return the window with the tables that its softmax takes in exported graphs.

        Returns:
            A window like this one.
        """
        if self.competition == "local":
            return self
        prepared = replace(self)
        groups = Groups(self.grid, self.positions, self.kernel, self.stride)
        object.__setattr__(prepared, "_groups", groups)
        return prepared

    def seen(self, mask: Tensor) -> Tensor:
        """Return which positions see a child that is present: the mask of the parents.

        Args:
            mask: True where a child is present.

        Shape:
            mask: bool [B, H, W, I] or [B, H, W]; returns [B, H', W'].

        Returns:
            True where a position sees any child.
        """
        places = mask.any(dim=-1) if mask.dim() > self.rank + 1 else mask  # [B, H, W]
        return self._unfold(places).flatten(1 + self.rank).any(dim=-1)  # [B, H', W']

    def sum_children(self, values: Tensor) -> Tensor:
        """Sum a value of each child over the children under the kernel at every position.

        Args:
            values: One number per child.

        Shape:
            values: [B, H, W, I]; returns [B, H', W'].

        Returns:
            The sums.
        """
        return self._unfold(values.sum(dim=-1)).sum(dim=tuple(range(-self.rank, 0)))

    def present_share(self, mask: Tensor) -> Tensor:
        """Compute which share of the children in `children_per_parent` is present.

        Args:
            mask: 1 where a child is present, 0 elsewhere.

        Shape:
            mask: [B, H, W, I], of a floating-point type; returns [B].

        Returns:
            The share of each sample, from 0 to 1.
        """
        index = self._grid_index(mask.device)  # [H'*W'*K*K]
        counts = torch.bincount(index, minlength=math.prod(self.grid))  # [H*W]
        # A child counts at every position that sees it, or once where these compete for it.
        counts = counts if self.competition == "local" else counts.clamp(max=1)
        present = mask.mean(dim=-1).flatten(1)  # [B, H*W]
        return (present * counts).sum(dim=1) / counts.sum()  # [B]

    def votes(self, poses: Tensor, weight: Tensor, presence: Tensor | None = None) -> Tensor:
        """Compute the votes of gathered children.

        Args:
            poses: Poses of the children, from `gather`.
            weight: One matrix per place of the kernel, type and parent, or per type and parent, shared by all places.
            presence: Factor on the offset of each child.

        Shape:
            poses: [B*H'*W', K*K*I, P]; weight: [K*K*I, J, p, p] for matrices, [K*K*I, J, P, D] for vectors, or
            [I, ...]; presence: [B*H'*W', K*K*I]; returns [B*H'*W', K*K*I, J, D].

        Returns:
            The votes.

        Raises:
            ShapeError: If poses and weight do not fit.
        """
        if self.pose == "matrix":
            votes = matrix_vote(poses, weight)  # [B*H'*W', K*K*I, J, D]
        else:
            votes = vote(poses, weight.repeat(poses.shape[1] // weight.shape[0], 1, 1, 1))  # [B*H'*W', K*K*I, J, D]
        if self.offsets is None:
            return votes
        offsets = F.pad(self.offsets.to(votes), (0, votes.shape[-1] - self.rank))  # [K*K, D]
        offsets = offsets.repeat_interleave(votes.shape[1] // len(offsets), dim=0).unsqueeze(1)  # [K*K*I, 1, D]
        return votes + (offsets if presence is None else presence[..., None, None] * offsets)

    def unflatten_grid(self, parents: Capsules) -> Capsules:
        """Arrange the parents of all positions as a grid.

        Args:
            parents: One set of parents per position.

        Shape:
            parents: [B*H'*W', J, D]; returns [B, H', W', J, D].

        Returns:
            The grid.
        """
        size = (-1, *self.positions)
        return Capsules(parents.poses.unflatten(0, size), parents.activations.unflatten(0, size))

    def softmax(self, logits: Tensor, /, *, background: Background = None) -> Tensor:
        """Softmax over the parents that compete for a child; see `competition`.

        Args:
            logits: One number per child that a position sees and parent there.
            background: The logit of belonging to no parent; without it, a child belongs to its parents wholly.

        Shape:
            logits: [B*H'*W', K*K*I, J]; returns the same shape.

        Returns:
            The coupling. Over all parents that see a child it sums to 1 ('global'), to 1 at each position ('local') or
            to 1 for each type of parent ('positions'), or to less with a background.
        """
        if self.competition == "local":
            return parent_softmax(logits, background=background)
        seen = self._grid_index(logits.device)  # [H'*W'*K*K]
        # One number per competition that a child takes part in: M = I where all types compete, I*J where each does.
        own = logits if self.competition == "positions" else logits.logsumexp(dim=-1, keepdim=True)
        shape = own.shape  # [B*H'*W', K*K*I, J or 1]
        own = own.reshape(-1, len(seen), math.prod(shape[1:]) // math.prod(self.kernel))  # [B, H'*W'*K*K, M]
        # The largest value of each child is taken out before the sum, as any log-sum-exp does.
        none = background.detach() if isinstance(background, Tensor) else background
        if torch.compiler.is_exporting():
            groups = self._groups or self.prepare()._groups
            assert groups is not None
            top = groups.amax(own.detach())  # [B, H'*W'*K*K, M]
            top = top if none is None else top.clamp_min(none)
            total = groups.sum((own - top).exp()) + (0 if background is None else (background - top).exp())
            return (logits - (top + total.log()).reshape(shape)).exp()  # [B*H'*W', K*K*I, J]
        top = own.new_zeros(own.shape[0], math.prod(self.grid), own.shape[2]) + (-torch.inf if none is None else none)
        index = seen[None, :, None].expand_as(own)
        top = top.scatter_reduce(1, index, own.detach(), "amax")  # [B, H*W, M]
        total = torch.zeros_like(top) if background is None else (background - top).exp()  # [B, H*W, M]
        total = total.index_add(1, seen, (own - top[:, seen]).exp())  # [B, H*W, M]
        normaliser = top[:, seen] + total[:, seen].log()  # [B, H'*W'*K*K, M]
        return (logits - normaliser.reshape(shape)).exp()  # [B*H'*W', K*K*I, J]

    def _unfold(self, grid: Tensor) -> Tensor:
        for axis, size in enumerate(self.kernel, 1):
            grid = grid.unfold(axis, size, self.stride)
        return grid

    def _grid_index(self, device: torch.device) -> Tensor:
        """Return the place of the grid, row by row, under each place of the kernel at each position."""
        places = torch.arange(math.prod(self.grid), device=device).view(1, *self.grid)
        return self._unfold(places).flatten()  # [H'*W'*K*K]


def receptive_centres(size: int, convs: Sequence[tuple[int, int]]) -> list[float]:
    """Compute the centres of the receptive fields of all positions along one axis of an image.

    Args:
        size: Number of pixels along the axis. The centre of pixel n is (n + 0.5) / size.
        convs: (kernel, stride) of the convolutions from the image upwards, all without padding.

    Returns:
        The centres, from 0 to 1.

    Example:
        >>> receptive_centres(8, [(2, 2)])
        [0.125, 0.375, 0.625, 0.875]
    """
    first, step, places = 0.5, 1, size
    for kernel, stride in convs:
        first += step * (kernel - 1) / 2
        step *= stride
        places = (places - kernel) // stride + 1
    return [(first + step * place) / size for place in range(places)]
