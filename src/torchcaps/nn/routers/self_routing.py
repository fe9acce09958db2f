"""The router of self-routing, with the linear map from a child's pose to its coupling."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps import ops
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router, check_unprepared, prepared
from torchcaps.types import Capsules


@ROUTERS.register("self_routing")
class SelfRouting(Router):
    """Routing without agreement: each child chooses from its own pose (Hahn et al. 2019); see `ops.self_routing`.

    The router learns a matrix and a bias for each child, or one for all children where a layer shares its weight. The
    activations sum to 1 over the parents.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Example:
        >>> router = SelfRouting()
        >>> router.prepare(6, 3, 8, 4)
        >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "self_routing"
    parent_axes = (("route_weight", -2), ("route_bias", -1))
    # The matrix belongs to a child and a parent, so that none can be exchanged; there are no iterations.
    laws = LAWS - {
        "iterations_are_counted",
        "one_iteration_is_uniform",
        "permuting_children_changes_nothing",
        "permuting_parents_permutes",
    }

    def __init__(self) -> None:
        super().__init__()
        self.route_weight: nn.Parameter | None = None  # [I, J, P]
        self.route_bias: nn.Parameter | None = None  # [I, J]

    def prepare(
        self,
        in_caps: int | None,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_unprepared(self.route_weight)
        shape = (out_caps,) if in_caps is None else (in_caps, out_caps)
        self.route_weight = nn.Parameter(torch.empty(*shape, in_dim, device=device, dtype=dtype))
        self.route_bias = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices with standard deviation 0.1 and set the biases to 0."""
        if self.route_weight is not None and self.route_bias is not None:
            nn.init.zeros_(self.route_bias)
            nn.init.normal_(self.route_weight, std=0.1)

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        return {"route_weight": prepared(self.route_weight), "route_bias": prepared(self.route_bias)}
