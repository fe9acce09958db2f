"""Capsule layers over a grid: convolutional capsules and class capsules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.nn._validation import check_positive
from torchcaps.nn.ranks import AXES, per_axis
from torchcaps.nn.routers import RoutingSpec, make_router
from torchcaps.ops import Window
from torchcaps.ops._reference import CouplingMode
from torchcaps.ops.conv import Competition, PoseKind, Size, check_pose
from torchcaps.types import Capsules, Trace


def grid_of(children: Capsules, types: int, size: int, rank: int | None = None) -> Size:
    """Return the sides of a grid of children.

    Raises ShapeError unless children are a grid [B, H, W, types, size] with activations [B, H, W, types]. Without a
    rank the grid may have one, two or three axes.

    Args:
        children: The children.
        types: Number of capsule types.
        size: Pose size.
        rank: Number of axes of the grid; None for one to three.

    Returns:
        The sides.
    """
    if not isinstance(children, Capsules):
        raise ShapeError(f"children: expected Capsules(poses, activations), got {type(children).__name__}")
    shape = tuple(children.poses.shape)
    ranks = AXES if rank is None else (rank,)
    if len(shape) - 3 not in ranks or shape[-2:] != (types, size):
        raise ShapeError(f"poses: expected [B, {AXES[rank or 2]}, {types}, {size}], got {shape}")
    if children.activations.shape != children.poses.shape[:-1]:
        raise ShapeError(f"activations: expected {shape[:-1]}, got {tuple(children.activations.shape)}")
    return shape[1:-2]


def vote_shape(pose: PoseKind, in_dim: int, out_dim: int) -> tuple[int, int]:
    """Return the last two axes of a weight: a square matrix that multiplies pose matrices, or [P, D] for vectors.

    Args:
        pose: Kind of the poses.
        in_dim: Pose size of the children.
        out_dim: Pose size of the parents.

    Returns:
        The two axes.
    """
    check_pose(pose)
    if pose == "vector":
        return in_dim, out_dim
    side = round(in_dim**0.5)
    if side * side != in_dim or out_dim != in_dim:
        raise ShapeError(f"in_dim, out_dim: expected the same square number for pose matrices, got {in_dim}, {out_dim}")
    return side, side


@torch.no_grad()
def init_votes_(weight: Tensor, pose: PoseKind) -> None:
    """Initialise a weight in place: the identity plus noise of deviation 0.1, or the noise alone for vectors.

    With matrices near the identity, neighbours whose poses agree cast votes that agree, and poses keep their size from
    layer to layer. With matrices about zero, of deviation 0.3 as in the released code, EM clusters noise at first and
    the network learns more slowly.
    """
    nn.init.normal_(weight, std=0.1)
    if pose == "matrix":
        # Views of the diagonal instead of a sum with an identity: it works on sharded tensors too.
        for k in range(weight.shape[-1]):
            weight.select(-1, k).select(-1, k).add_(1)


class GridCaps(nn.Module):
    """Base of the layers over a grid: a weight per place and type, a router, and a window that a subclass makes."""

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        places: int | None,
        *,
        dims: tuple[int, int],
        pose: PoseKind,
        routing: RoutingSpec | None,
        backend: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_positive(in_caps=in_caps, out_caps=out_caps)
        self.in_caps = in_caps
        self.in_dim, self.out_dim = dims
        self.pose: PoseKind = pose
        self.routing = make_router("em" if routing is None else routing)
        self.routing.contract.check_backend(backend)
        self.backend = backend
        # Without a number of places all of them share the weight of one.
        children = in_caps if places is None else places * in_caps
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.routing.prepare(None if places is None else children, out_caps, *dims, **factory)
        shape = (children, out_caps, *vote_shape(pose, *dims))
        self.weight = nn.Parameter(torch.empty(shape, **factory))  # [K*K*I, J, p, p]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight: pose matrices near the identity, or small matrices for vectors."""
        init_votes_(self.weight, self.pose)

    def window(self, children: Capsules) -> Window:
        """Return the window of the layer over a grid of children.

        Args:
            children: A grid of lower capsules.

        Returns:
            The window.

        Raises:
            ShapeError: If the children do not fit the layer.
        """
        raise NotImplementedError

    def forward(self, children: Capsules, mask: Tensor | None = None) -> Capsules:
        """Route a grid of children to a grid of parents.

        Args:
            children: The lower capsules.
            mask: True where a child, or every child of a place, is present; see `CapsLinear`. The parents of a position
                that sees no child are 0; `window(children).seen(mask)` is their mask.

        Shape:
            children: [B, H, W, in_caps, in_dim]; mask: bool [B, H, W, in_caps] or [B, H, W]; returns
            [B, H', W', out_caps, out_dim].

        Returns:
            The parents.

        Raises:
            ShapeError: If the children or the mask do not fit the layer.
        """
        window = self.window(children)
        return self.routing.route_conv(children, self.weight, window, backend=self.backend, mask=mask)

    def trace(self, children: Capsules, *, coupling: CouplingMode = "routed", iters: int | None = None) -> Trace:
        """Route with the reference and keep every iteration; each position counts as a sample, [R, B*H'*W', ...].

        Args:
            children: A grid of lower capsules.
            coupling: `uniform` gives every parent the same share of a child in all iterations.
            iters: Number of iterations instead of the router's own.

        Returns:
            The iterations, stacked along a first axis R.
        """
        window = self.window(children)
        return self.routing.trace_conv(children, self.weight, window, coupling=coupling, iters=iters)


class CapsConv(GridCaps):
    """Base of the convolutional capsule layers over signals, images and volumes.

    Args:
        in_caps: Number of types of children.
        out_caps: Number of types of parents.
        kernel_size: Size K of the kernel.
        stride: Step of the kernel.
        dims: Pose sizes of children and parents.
        pose: `matrix` multiplies square pose matrices; `vector` multiplies pose vectors by matrices [P, D].
        routing: A router, its name, or a table with its name and options. Default: EM routing with 3 iterations.
        competition: Parents that compete for a child; see `ops.Window`.
        backend: As in `CapsLinear`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Raises:
        ConfigError: If a size is not positive, an option is unknown, or the routing has no such backend.
    """

    rank: ClassVar[int]

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        kernel_size: int | Size = 3,
        stride: int = 1,
        *,
        dims: tuple[int, int] = (16, 16),
        pose: PoseKind = "matrix",
        routing: RoutingSpec | None = None,
        competition: Competition = "global",
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        size = per_axis("kernel_size", kernel_size, self.rank)
        super().__init__(
            in_caps,
            out_caps,
            math.prod(size),
            dims=dims,
            pose=pose,
            routing=routing,
            backend=backend,
            device=device,
            dtype=dtype,
        )
        self.kernel_size: Size = size
        self.stride = stride
        self.competition: Competition = competition

    def window(self, children: Capsules) -> Window:
        grid = grid_of(children, self.in_caps, self.in_dim, self.rank)
        return Window(grid, self.kernel_size, self.stride, self.competition, self.pose)

    def extra_repr(self) -> str:
        return (
            f"in_caps={self.in_caps}, out_caps={self.weight.shape[1]}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, pose={self.pose!r}, competition={self.competition!r}"
        )


class CapsConv1d(CapsConv):
    """A convolutional capsule layer over signals; the arguments are those of `CapsConv2d`.

    Attributes:
        rank: Number of axes of a signal, 1.

    Shape:
        children: poses [B, T, in_caps, in_dim], activations [B, T, in_caps]; returns poses [B, T', out_caps, out_dim],
        activations [B, T', out_caps], T' = (T - K) // stride + 1.

    Example:
        >>> layer = CapsConv1d(8, 16, kernel_size=3, stride=2)
        >>> layer(Capsules(torch.randn(2, 14, 8, 16), torch.rand(2, 14, 8))).poses.shape
        torch.Size([2, 6, 16, 16])
    """

    rank = 1


class CapsConv2d(CapsConv):
    """A convolutional capsule layer: the children under a kernel vote for the parents at its position.

    All positions share the weights (Hinton et al. 2018, section 4).

    Args:
        in_caps: Number of types of children.
        out_caps: Number of types of parents.
        kernel_size: Size K of the kernel, or one size per axis.
        stride: Step of the kernel.
        dims: Pose sizes of children and parents.
        pose: `matrix` multiplies square pose matrices; `vector` multiplies pose vectors by matrices [P, D].
        routing: A router, its name, or a table with its name and options. Default: EM routing with 3 iterations.
        competition: Parents that compete for a child; see `ops.Window`.
        backend: As in `CapsLinear`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        children: poses [B, H, W, in_caps, in_dim], activations [B, H, W, in_caps]; returns poses
        [B, H', W', out_caps, out_dim], activations [B, H', W', out_caps], H' = (H - K) // stride + 1.

    Raises:
        ConfigError: If a size is not positive, an option is unknown, or the routing has no such backend.

    Example:
        >>> layer = CapsConv2d(8, 16, kernel_size=3, stride=2)
        >>> layer(Capsules(torch.randn(2, 14, 14, 8, 16), torch.rand(2, 14, 14, 8))).poses.shape
        torch.Size([2, 6, 6, 16, 16])
    """

    rank = 2


class CapsConv3d(CapsConv):
    """A convolutional capsule layer over volumes; the arguments are those of `CapsConv2d`.

    The compiled kernels have planes, so the backend is `recompute` or `reference`.

    Attributes:
        rank: Number of axes of a volume, 3.

    Shape:
        children: poses [B, D, H, W, in_caps, in_dim], activations [B, D, H, W, in_caps]; returns poses
        [B, D', H', W', out_caps, out_dim], activations [B, D', H', W', out_caps].

    Example:
        >>> layer = CapsConv3d(2, 3, kernel_size=2, stride=2)
        >>> layer(Capsules(torch.randn(2, 4, 4, 4, 2, 16), torch.rand(2, 4, 4, 4, 2))).poses.shape
        torch.Size([2, 2, 2, 2, 3, 16])
    """

    rank = 3


CAPS_CONVS: dict[int, type[CapsConv]] = {kind.rank: kind for kind in (CapsConv1d, CapsConv2d, CapsConv3d)}


class ClassCaps(GridCaps):
    """The class layer of matrix capsules: every child of a grid votes for every class.

    All positions share one matrix per type of child and class. With `centres` the position of a child is added to the
    first entries of its votes (coordinate addition, Hinton et al. 2018, section 4). Grids have one, two or three axes.

    Args:
        in_caps: Number of types of children.
        out_caps: Number of classes.
        dims: Pose sizes of children and classes.
        pose: `matrix` or `vector`; see `CapsConv2d`.
        routing: A router, its name, or a table with its name and options. Default: EM routing with 3 iterations.
        centres: Places of the children along each axis, in an image those of rows and columns
            (`ops.receptive_centres`, or these times a factor). Without them the grid may have any size.
        backend: As in `CapsLinear`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        children: poses [B, H, W, in_caps, in_dim], activations [B, H, W, in_caps]; centres: [H] and [W], or of a signal
        [T]; returns poses [B, out_caps, out_dim], activations [B, out_caps].

    Raises:
        ConfigError: If a size is not positive, an option is unknown, or the routing has no such backend.

    Example:
        >>> layer = ClassCaps(16, 5, centres=([0.25, 0.75], [0.25, 0.75]))
        >>> layer(Capsules(torch.randn(2, 2, 2, 16, 16), torch.rand(2, 2, 2, 16))).poses.shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        *,
        dims: tuple[int, int] = (16, 16),
        pose: PoseKind = "matrix",
        routing: RoutingSpec | None = None,
        centres: Sequence[Sequence[float]] | None = None,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_caps,
            out_caps,
            None,
            dims=dims,
            pose=pose,
            routing=routing,
            backend=backend,
            device=device,
            dtype=dtype,
        )
        self.grid = None if centres is None else tuple(map(len, centres))
        # Numbers instead of a buffer: they survive `to_empty`, and a state_dict does not need them.
        self.offset_values = None if centres is None else [list(pair) for pair in itertools.product(*centres)]

    @property
    def offsets(self) -> Tensor | None:
        """Positions of the children in the image, [H*W, 2] with a column per axis, or None without `centres`."""
        if self.offset_values is None or self.grid is None:
            return None
        values = torch.tensor(self.offset_values, dtype=torch.float32, device=self.weight.device)
        return values.reshape(-1, len(self.grid))

    def window(self, children: Capsules) -> Window:
        grid = grid_of(children, self.in_caps, self.in_dim)
        if self.grid is not None and self.grid != grid:
            raise ShapeError(f"poses: expected a grid of {self.grid}, as many as centres, got {grid}")
        return Window(grid, grid, pose=self.pose, offsets=self.offsets)

    def forward(self, children: Capsules, mask: Tensor | None = None) -> Capsules:
        """Route a grid of children to the classes.

        Args:
            children: The lower capsules.
            mask: True where a child, or every child of a place, is present; see `CapsLinear`.

        Shape:
            children: [B, H, W, in_caps, in_dim]; mask: bool [B, H, W, in_caps] or [B, H, W]; returns
            [B, out_caps, out_dim].

        Returns:
            The class capsules.

        Raises:
            ShapeError: If the children or the mask do not fit the layer.
        """
        return super().forward(children, mask).flatten()

    def extra_repr(self) -> str:
        coordinates = self.grid is not None
        return f"in_caps={self.in_caps}, out_caps={self.weight.shape[1]}, pose={self.pose!r}, coordinates={coordinates}"
