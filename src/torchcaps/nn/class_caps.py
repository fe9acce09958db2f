"""The class layer of matrix capsules: every child of a grid votes for every class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._counts import check_counts
from torchcaps.nn.conv import check_grid, start_weight, vote_shape
from torchcaps.nn.routers import Router, make_router
from torchcaps.ops import Window
from torchcaps.ops._dispatch import Backend, check_backend
from torchcaps.ops.conv import PoseKind
from torchcaps.types import Capsules, Trace


class ClassCaps(nn.Module):
    """One capsule per class, seen by the whole grid, with one matrix per child type shared by all positions.

    children [B, H, W, in_caps, in_dim] give classes [B, out_caps, out_dim]. `centres` are the rows [H] and columns [W]
    of the children in the image, from 0 to 1 (`ops.receptive_centres`): they are added to the first two entries of a
    child's votes, so that the classes know where their parts are (coordinate addition, Hinton et al. 2018, section 4).
    Without them votes say nothing of the place, and the grid may have any size.

    >>> layer = ClassCaps(16, 5, centres=([0.25, 0.75], [0.25, 0.75]))
    >>> layer(Capsules(torch.randn(2, 2, 2, 16, 16), torch.rand(2, 2, 2, 16))).poses.shape
    torch.Size([2, 5, 16])
    """

    offsets: Tensor | None

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        *,
        dims: tuple[int, int] = (16, 16),
        pose: PoseKind = "matrix",
        routing: Router | str | Mapping[str, Any] | None = None,
        centres: tuple[Sequence[float], Sequence[float]] | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(in_caps=in_caps, out_caps=out_caps)
        self.in_caps = in_caps
        self.in_dim, self.out_dim = dims
        self.pose: PoseKind = pose
        self.routing = make_router("em" if routing is None else routing)
        check_backend(backend, self.routing.algorithm)
        self.backend: Backend = backend
        self.routing.prepare(None, out_caps, *dims)
        self.weight = nn.Parameter(torch.empty(in_caps, out_caps, *vote_shape(pose, *dims)))  # [I, J, p, p]
        self.grid = None if centres is None else (len(centres[0]), len(centres[1]))
        offsets = None if centres is None else torch.cartesian_prod(*map(torch.tensor, centres)).reshape(-1, 2)
        self.register_buffer("offsets", offsets, persistent=False)  # [H*W, 2]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight anew; see `start_weight`."""
        start_weight(self.weight, self.pose)

    def window(self, children: Capsules) -> Window:
        """One position that sees the whole grid."""
        check_grid(children, self.in_caps, self.in_dim)
        height, width = children.poses.shape[1:3]
        if self.grid is not None and self.grid != (height, width):
            raise ShapeError(f"poses: expected a grid of {self.grid}, as many as centres, got {(height, width)}")
        return Window((height, width), (height, width), pose=self.pose, offsets=self.offsets)

    def forward(self, children: Capsules) -> Capsules:
        return self.routing.convolve(children, self.weight, self.window(children), backend=self.backend).flatten()

    def trace(self, children: Capsules) -> Trace:
        """Route with every iteration kept."""
        window = self.window(children)
        seen = window.gather(children)
        return self.routing.trace(self.routing.votes(seen, self.weight, window), seen, window=window)

    def extra_repr(self) -> str:
        coordinates = self.offsets is not None
        return f"in_caps={self.in_caps}, out_caps={self.weight.shape[1]}, pose={self.pose!r}, coordinates={coordinates}"
