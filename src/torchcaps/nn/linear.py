"""A dense capsule layer: every child votes for every parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn._validation import check_positive
from torchcaps.nn.routers import RoutingSpec, make_router
from torchcaps.ops import expand_mask, mask_children, vote
from torchcaps.ops._reference import CouplingMode
from torchcaps.types import Capsules, Trace

if TYPE_CHECKING:
    from torchcaps.nn.shards import ParentShards


class CapsLinear(nn.Module):
    """A dense capsule layer: votes through one matrix per child and parent, then routing.

    votes_ij = poses_i weight_ij (Sabour et al. 2017, eq. 2). A grid of children is flattened position by position.

    Args:
        in_caps: Number of children. With None all children share one matrix per parent, and their number is free.
            `LazyCapsLinear` takes the number from its first children.
        out_caps: Number of parents.
        in_dim: Pose size of the children.
        out_dim: Pose size of the parents.
        routing: A router, its name, or a table with its name and options. Default: dynamic routing.
        bias: Learn a vector that is added to each parent before it is squashed, as the released code of Sabour et al.
            2017 does.
        backend: Implementation of the routing. `auto` takes the fastest one that is available and supports the case;
            `reference` is the definition; `cpu`, `triton` and `recompute` name a kernel. Under `torch.func`,
            forward-mode derivatives and export `auto` takes the reference.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        children: poses [B, in_caps, in_dim], activations [B, in_caps], or a grid of them; returns poses
        [B, out_caps, out_dim], activations [B, out_caps].

    Raises:
        ConfigError: If a size is not positive, the routing takes no bias, or it has no such backend.

    Example:
        >>> layer = CapsLinear(1152, 10, in_dim=8, out_dim=16, routing="dynamic")
        >>> layer(Capsules(torch.randn(2, 1152, 8), torch.ones(2, 1152))).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        in_caps: int | None,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        routing: RoutingSpec | None = None,
        bias: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(in_caps, str):
            raise ConfigError(
                f"in_caps: expected a count or None, got {in_caps!r} (LazyCapsLinear takes it from its first children)"
            )
        check_positive(in_caps=1 if in_caps is None else in_caps, out_caps=out_caps, in_dim=in_dim, out_dim=out_dim)
        self.in_caps = in_caps
        self.routing = make_router("dynamic" if routing is None else routing)
        if bias and not self.routing.takes_bias:
            raise ConfigError(f"bias: expected False with {type(self.routing).__name__}, got True (it takes no bias)")
        self.routing.contract.check_backend(backend)
        self.backend = backend
        # Where the parents are divided over processes; see `shard_parents`.
        self.shards: ParentShards | None = None
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.bias = nn.Parameter(torch.empty(out_caps, out_dim, **factory)) if bias else None  # [J, D]
        self._create(in_caps, in_dim, (out_caps, out_dim), factory)

    def _create(self, in_caps: int | None, in_dim: int, parents: tuple[int, int], factory: dict[str, Any]) -> None:
        """Create the parameters whose sizes depend on the children: those of the router and the weight."""
        out_caps, out_dim = parents
        self.routing.prepare(in_caps, out_caps, in_dim, out_dim, **factory)
        shape = (out_caps, in_dim, out_dim) if in_caps is None else (in_caps, out_caps, in_dim, out_dim)
        self.weight = nn.Parameter(torch.empty(shape, **factory))  # [I, J, P, D]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight with standard deviation 0.1 and set the bias to 0.1, as the released code does."""
        nn.init.trunc_normal_(self.weight, std=0.1, a=-0.2, b=0.2)
        if self.bias is not None:
            nn.init.constant_(self.bias, 0.1)

    def forward(self, children: Capsules, mask: Tensor | None = None) -> Capsules:
        """Route the children to the parents.

        Args:
            children: The lower capsules.
            mask: True where a child is present. The others are padding: they have no effect and no gradient. The
                parents of a sample without any child are 0.

        Shape:
            children: [B, in_caps, in_dim] or [B, H, W, I, in_dim]; mask: bool [B, in_caps], or [B, H, W, I] or
            [B, H, W]; returns [B, out_caps, out_dim].

        Returns:
            The parents.

        Raises:
            ShapeError: If the children or the mask do not fit the weight.
        """
        flat, mask = self._present(children, mask)
        if self.shards is not None:
            return self.shards.route(self, flat, mask)
        return self.routing.route(flat, self._matrices(flat), bias=self.bias, backend=self.backend, mask=mask)

    def trace(
        self,
        children: Capsules,
        *,
        coupling: CouplingMode = "routed",
        iters: int | None = None,
        mask: Tensor | None = None,
    ) -> Trace:
        """Route with the reference and keep every iteration.

        Args:
            children: The lower capsules.
            coupling: `uniform` gives every parent the same share of a child in all iterations.
            iters: Number of iterations instead of the router's own.
            mask: True where a child is present.

        Returns:
            The iterations, stacked along a first axis R.

        Raises:
            ConfigError: If the parents are divided over processes.
        """
        if self.shards is not None:
            raise ConfigError("layer: expected one with all its parents, got parents divided over processes")
        children, mask = self._present(children, mask)
        router = self.routing if iters is None else self.routing.with_iters(iters)
        params = {} if mask is None else router.masked_params(children, mask)
        children = mask_children(children, mask)
        votes = vote(children.poses, self._matrices(children))  # [B, I, J, D]
        return router.trace(votes, children, bias=self.bias, coupling=coupling, **params)

    def extra_repr(self) -> str:
        in_dim, out_dim = self.weight.shape[-2:]
        sizes = f"in_caps={self.in_caps}, out_caps={self.weight.shape[-3]}, in_dim={in_dim}, out_dim={out_dim}"
        return sizes if self.backend == "auto" else f"{sizes}, backend={self.backend!r}"

    def _matrices(self, children: Capsules) -> Tensor:
        """Return the weight of the children, [I, J, P, D], or [J, P, D] if they share it."""
        return self.weight

    def _present(self, children: Capsules, mask: Tensor | None) -> tuple[Capsules, Tensor | None]:
        """Return the children and their mask as sets, [B, I, P] and [B, I]."""
        if not isinstance(children, Capsules):
            raise ShapeError(f"children: expected Capsules(poses, activations), got {type(children).__name__}")
        return children.flatten(), None if mask is None else expand_mask(mask, children).flatten(1)
