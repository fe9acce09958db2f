"""A convolutional capsule layer: parents at each position see the children under a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._counts import check_counts
from torchcaps.nn.routers import Router, make_router
from torchcaps.ops import Window
from torchcaps.ops._dispatch import Backend, check_backend
from torchcaps.ops.conv import Competition, PoseKind, Size, check_pose
from torchcaps.types import Capsules, Trace


def check_grid(children: Capsules, types: int, size: int) -> None:
    """Raise unless children are a grid [B, H, W, types, size] with activations [B, H, W, types]."""
    if not isinstance(children, Capsules):
        raise ShapeError(f"children: expected Capsules(poses, activations), got {type(children).__name__}")
    if children.poses.dim() != 5 or children.poses.shape[3:] != (types, size):
        raise ShapeError(f"poses: expected [B, H, W, {types}, {size}], got {tuple(children.poses.shape)}")
    if children.activations.shape != children.poses.shape[:4]:
        raise ShapeError(
            f"activations: expected {tuple(children.poses.shape[:4])}, got {tuple(children.activations.shape)}"
        )


def vote_shape(pose: PoseKind, in_dim: int, out_dim: int) -> tuple[int, int]:
    """The last two axes of a weight: a square matrix that multiplies pose matrices, or [P, D] for vectors."""
    check_pose(pose)
    if pose == "vector":
        return in_dim, out_dim
    side = round(in_dim**0.5)
    if side * side != in_dim or out_dim != in_dim:
        raise ShapeError(f"in_dim, out_dim: expected the same square number for pose matrices, got {in_dim}, {out_dim}")
    return side, side


@torch.no_grad()
def start_weight(weight: Tensor, pose: PoseKind) -> None:
    """Draw a weight anew: the identity with deviation 0.1 about it, or deviation 0.1 about zero for vectors.

    With matrices about the identity, neighbours whose poses agree cast votes that agree, and poses keep their size from
    layer to layer. Matrices about zero, of deviation 0.3 as in the released code, let EM cluster noise at first, and
    the network learns more slowly.
    """
    nn.init.normal_(weight, std=0.1)
    if pose == "matrix":
        weight += torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device)


class CapsConv2d(nn.Module):
    """Capsules in a grid vote for capsules in a smaller grid, with weights shared by all positions.

    children [B, H, W, in_caps, in_dim] give parents [B, H', W', out_caps, out_dim], H' = (H - K) // stride + 1. Poses
    are square matrices (`pose='matrix'`, weight [K*K*I, J, p, p]) or vectors (weight [K*K*I, J, P, D]). For
    `competition` see `ops.Window`. `routing` is a router, its name, or a table with its name and options; without it,
    EM routing with 3 iterations (Hinton et al. 2018).

    >>> layer = CapsConv2d(8, 16, kernel_size=3, stride=2)
    >>> layer(Capsules(torch.randn(2, 14, 14, 8, 16), torch.rand(2, 14, 14, 8))).poses.shape
    torch.Size([2, 6, 6, 16, 16])
    """

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        kernel_size: int | Size = 3,
        stride: int = 1,
        *,
        dims: tuple[int, int] = (16, 16),
        pose: PoseKind = "matrix",
        routing: Router | str | Mapping[str, Any] | None = None,
        competition: Competition = "global",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(in_caps=in_caps, out_caps=out_caps)
        self.in_caps = in_caps
        self.in_dim, self.out_dim = dims
        self.kernel_size: Size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        self.stride = stride
        self.pose: PoseKind = pose
        self.competition: Competition = competition
        self.routing = make_router("em" if routing is None else routing)
        check_backend(backend, self.routing.algorithm)
        self.backend: Backend = backend
        seen = self.kernel_size[0] * self.kernel_size[1] * in_caps
        self.routing.prepare(seen, out_caps, *dims)
        self.weight = nn.Parameter(torch.empty(seen, out_caps, *vote_shape(pose, *dims)))  # [K*K*I, J, p, p]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight anew; see `start_weight`."""
        start_weight(self.weight, self.pose)

    def window(self, children: Capsules) -> Window:
        """How the kernel lies on these children."""
        check_grid(children, self.in_caps, self.in_dim)
        height, width = children.poses.shape[1:3]
        return Window((height, width), self.kernel_size, self.stride, self.competition, self.pose)

    def forward(self, children: Capsules) -> Capsules:
        return self.routing.convolve(children, self.weight, self.window(children), backend=self.backend)

    def trace(self, children: Capsules) -> Trace:
        """Route with every iteration kept; each position counts as a sample, [R, B*H'*W', ...]."""
        window = self.window(children)
        seen = window.gather(children)
        return self.routing.trace(self.routing.votes(seen, self.weight, window), seen, window=window)

    def extra_repr(self) -> str:
        return (
            f"in_caps={self.in_caps}, out_caps={self.weight.shape[1]}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, pose={self.pose!r}, competition={self.competition!r}"
        )
