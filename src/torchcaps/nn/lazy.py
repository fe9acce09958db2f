"""A dense capsule layer that takes the number of its children from the first ones it receives."""

# torch types the methods of LazyModuleMixin by a private protocol.
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter, is_lazy

from torchcaps.nn.linear import CapsLinear, CouplingMode
from torchcaps.nn.routers import RoutingSpec
from torchcaps.types import Capsules, Trace


class LazyCapsLinear(LazyModuleMixin, CapsLinear):
    """A `CapsLinear` whose `in_caps` and `in_dim` follow from the first children, as in `torch.nn.LazyLinear`.

    The first call of `forward` or `trace`, or weights that are loaded, create the weight and the parameters of the
    router. The layer then is a `CapsLinear`. Make that call before an optimiser takes the parameters.

    Args:
        out_caps: Number of parents.
        out_dim: Pose size of the parents.
        routing: As in `CapsLinear`.
        bias: As in `CapsLinear`.
        backend: As in `CapsLinear`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        children: poses [B, I, P] or a grid of them; returns poses [B, out_caps, out_dim], activations [B, out_caps].

    Raises:
        ConfigError: If a size is not positive, the routing takes no bias, or it has no such backend.

    Example:
        >>> layer = LazyCapsLinear(10, 16)
        >>> layer(Capsules(torch.randn(2, 6, 6, 8, 4), torch.ones(2, 6, 6, 8))).poses.shape
        torch.Size([2, 10, 16])
        >>> layer
        CapsLinear(
          in_caps=288, out_caps=10, in_dim=4, out_dim=16
          (routing): DynamicRouting(iters=3, leaky=False, grad='all', squash='standard')
        )
    """

    cls_to_become = CapsLinear  # pyright: ignore[reportAssignmentType]

    def __init__(
        self,
        out_caps: int,
        out_dim: int,
        *,
        routing: RoutingSpec | None = None,
        bias: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        # No parameter is made of the pose size 1: `_create` waits for the children.
        super().__init__(
            None, out_caps, 1, out_dim, routing=routing, bias=bias, backend=backend, device=device, dtype=dtype
        )

    def _create(self, in_caps: int | None, in_dim: int, parents: tuple[int, int], factory: dict[str, Any]) -> None:
        self.parents = parents
        self.weight = UninitializedParameter(**factory)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters again, once they exist."""
        if not self.has_uninitialized_params():
            CapsLinear.reset_parameters(self)

    def initialize_parameters(self, children: Capsules, mask: Tensor | None = None) -> None:
        """Create the parameters for these children.

        Args:
            children: The lower capsules.
            mask: Not read; `forward` takes it.

        Raises:
            ShapeError: If the children are not `Capsules`.
        """
        if self.has_uninitialized_params():
            self._materialize(*self._present(children, None)[0].poses.shape[1:])

    def trace(
        self,
        children: Capsules,
        *,
        coupling: CouplingMode = "routed",
        iters: int | None = None,
        mask: Tensor | None = None,
    ) -> Trace:
        """Route with the reference and keep every iteration; see `CapsLinear.trace`.

        Args:
            children: The lower capsules.
            coupling: As in `CapsLinear.trace`.
            iters: Number of iterations instead of the router's own.
            mask: True where a child is present.

        Returns:
            The iterations, stacked along a first axis R.
        """
        self._infer_parameters(self, (children,))
        return CapsLinear.trace(self, children, coupling=coupling, iters=iters, mask=mask)

    def extra_repr(self) -> str:
        if not self.has_uninitialized_params():
            return CapsLinear.extra_repr(self)
        return f"in_caps=?, out_caps={self.parents[0]}, in_dim=?, out_dim={self.parents[1]}"

    def _materialize(self, in_caps: int, in_dim: int) -> None:
        """Create weight and router for this number and pose size of children, as `CapsLinear` does."""
        factory: dict[str, Any] = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.in_caps = in_caps
        out_caps, out_dim = self.parents
        self.routing.prepare(in_caps, out_caps, in_dim, out_dim, **factory)
        weight = self.weight
        assert isinstance(weight, UninitializedParameter)
        weight.materialize((in_caps, out_caps, in_dim, out_dim))
        with torch.no_grad():
            self.reset_parameters()

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Create the parameters, with those of the router, for the weight that is loaded."""
        weight = state_dict.get(f"{prefix}weight")
        if self.has_uninitialized_params() and isinstance(weight, Tensor) and not is_lazy(weight) and weight.dim() == 4:
            self._materialize(weight.shape[0], weight.shape[2])
