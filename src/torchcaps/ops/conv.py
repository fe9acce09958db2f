"""Windows over a grid of capsules: which children a parent sees, and between which parents a child chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._steps import parent_softmax
from torchcaps.ops.votes import matrix_vote, vote
from torchcaps.types import Capsules

Competition = Literal["global", "local"]
PoseKind = Literal["matrix", "vector"]
Size = tuple[int, int]


def check_pose(pose: str) -> None:
    """Raise unless it is a kind of pose."""
    if pose not in get_args(PoseKind):
        raise ConfigError(f"pose: expected one of {', '.join(get_args(PoseKind))}, got '{pose}'")


@dataclass(frozen=True, eq=False)
class Window:
    """A kernel that moves over a grid of children; at each of its positions stand the same J parents.

    With competition 'global' a child divides itself among all parents at all positions that see it (Hinton et al.
    2018, section 4); with 'local' it does so at each position anew, as if it were a child there alone. `pose` says how
    a child votes: by `matrix_vote` or by `vote`. `offsets` [K*K, 2] are added to the first two entries of the votes
    from each place of the kernel.

    >>> window = Window(grid=(14, 14), kernel=(3, 3), stride=2)
    >>> window.positions
    (6, 6)
    """

    grid: Size
    kernel: Size
    stride: int = 1
    competition: Competition = "global"
    pose: PoseKind = "matrix"
    offsets: Tensor | None = None

    def __post_init__(self) -> None:
        check_pose(self.pose)
        if self.stride < 1:
            raise ConfigError(f"stride: expected a count of at least 1, got {self.stride}")
        if min(self.kernel) < 1:
            raise ConfigError(f"kernel: expected two counts of at least 1, got {self.kernel}")
        if self.competition not in get_args(Competition):
            raise ConfigError(
                f"competition: expected one of {', '.join(get_args(Competition))}, got '{self.competition}'"
            )
        if any(side < size for side, size in zip(self.grid, self.kernel, strict=True)):
            raise ShapeError(f"children: expected a grid of at least {self.kernel}, got {self.grid}")

    @property
    def positions(self) -> Size:
        """How many positions the kernel has along height and width."""
        height, width = ((side - size) // self.stride + 1 for side, size in zip(self.grid, self.kernel, strict=True))
        return height, width

    def load(self, types: int, parents: int) -> float:
        """How many children fall to a parent on average, where each position has so many parents."""
        places = self.kernel[0] * self.kernel[1]
        if self.competition == "local":
            return types * places / parents
        seen = 1
        for count, size in zip(self.positions, self.kernel, strict=True):
            seen *= (count - 1) * min(self.stride, size) + size
        return types * seen / (self.positions[0] * self.positions[1] * parents)

    def gather(self, children: Capsules) -> Capsules:
        """The children at each position as a set of their own: [B, H, W, I, P] becomes [B*H'*W', K*K*I, P]."""
        poses = self._unfold(children.poses)  # [B, H', W', I, P, K, K]
        poses = poses.permute(0, 1, 2, 5, 6, 3, 4).flatten(3, 5).flatten(0, 2)  # [B*H'*W', K*K*I, P]
        activations = self._unfold(children.activations)  # [B, H', W', I, K, K]
        activations = activations.permute(0, 1, 2, 4, 5, 3).flatten(3, 5).flatten(0, 2)  # [B*H'*W', K*K*I]
        return Capsules(poses, activations)

    def votes(self, poses: Tensor, weight: Tensor, presence: Tensor | None = None) -> Tensor:
        """What the gathered children [B*H'*W', K*K*I, P] vote, [B*H'*W', K*K*I, J, D].

        weight is [K*K*I, J, p, p] for matrices, [K*K*I, J, P, D] for vectors, or [I, ...] shared by all places of the
        kernel. With `presence` [B*H'*W', K*K*I] a child that is half there adds half of its offset.
        """
        if self.pose == "matrix":
            votes = matrix_vote(poses, weight)  # [B*H'*W', K*K*I, J, D]
        else:
            votes = vote(poses, weight.repeat(poses.shape[1] // weight.shape[0], 1, 1, 1))  # [B*H'*W', K*K*I, J, D]
        if self.offsets is None:
            return votes
        offsets = F.pad(self.offsets.to(votes), (0, votes.shape[-1] - 2))  # [K*K, D]
        offsets = offsets.repeat_interleave(votes.shape[1] // len(offsets), dim=0).unsqueeze(1)  # [K*K*I, 1, D]
        return votes + (offsets if presence is None else presence[..., None, None] * offsets)

    def spread(self, parents: Capsules) -> Capsules:
        """The parents of all positions as a grid: [B*H'*W', J, D] becomes [B, H', W', J, D]."""
        size = (-1, *self.positions)
        return Capsules(parents.poses.unflatten(0, size), parents.activations.unflatten(0, size))

    def softmax(self, logits: Tensor, /, *, leaky: bool = False) -> Tensor:
        """Softmax over the parents that compete for a child.

        logits [B*H'*W', K*K*I, J] give coupling of the same shape, which sums to 1 over all parents that see a child.
        leaky adds one more parent with logit 0 for each child.
        """
        if self.competition == "local":
            return parent_softmax(logits, leaky=leaky)
        rows, columns = self.positions
        seen = self._seen(logits.device)  # [H'*W'*K*K]
        at_position = logits.logsumexp(dim=-1)  # [B*H'*W', K*K*I]
        at_position = at_position.reshape(-1, len(seen), logits.shape[1] // (self.kernel[0] * self.kernel[1]))
        batch, _, types = at_position.shape
        # The largest value of each child is taken out before the sum, as any log-sum-exp does.
        top = at_position.new_full((batch, self.grid[0] * self.grid[1], types), 0.0 if leaky else -torch.inf)
        index = seen[None, :, None].expand_as(at_position)
        top = top.scatter_reduce(1, index, at_position.detach(), "amax")  # [B, H*W, I]
        total = (-top).exp() if leaky else torch.zeros_like(top)  # [B, H*W, I]
        total = total.index_add(1, seen, (at_position - top[:, seen]).exp())  # [B, H*W, I]
        normaliser = top[:, seen] + total[:, seen].log()  # [B, H'*W'*K*K, I]
        return (logits - normaliser.reshape(batch * rows * columns, logits.shape[1], 1)).exp()  # [B*H'*W', K*K*I, J]

    def _unfold(self, grid: Tensor) -> Tensor:
        return grid.unfold(1, self.kernel[0], self.stride).unfold(2, self.kernel[1], self.stride)

    def _seen(self, device: torch.device) -> Tensor:
        """Which place of the grid, row by row, each place of the kernel falls on at each position."""
        places = torch.arange(self.grid[0] * self.grid[1], device=device).view(1, *self.grid)
        return self._unfold(places).flatten()  # [H'*W'*K*K]


def receptive_centres(size: int, convs: Sequence[tuple[int, int]]) -> list[float]:
    """Where in the image, along one axis, the centre of each position's receptive field lies, from 0 to 1.

    `convs` are (kernel, stride) from the image upwards, all without padding. The centre of pixel n is (n + 0.5) / size.

    >>> receptive_centres(8, [(2, 2)])
    [0.125, 0.375, 0.625, 0.875]
    """
    first, step, places = 0.5, 1, size
    for kernel, stride in convs:
        first += step * (kernel - 1) / 2
        step *= stride
        places = (places - kernel) // stride + 1
    return [(first + step * place) / size for place in range(places)]
