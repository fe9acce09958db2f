"""The router of self-routing, with the little network that each child decides by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.nn.routers import ROUTERS, Router, prepared, unprepared
from torchcaps.ops import _dispatch
from torchcaps.types import Capsules


@ROUTERS.register("self_routing")
class SelfRouting(Router):
    """Routing without agreement: each child decides from its own pose (Hahn et al. 2019); see `ops.self_routing`.

    It learns a matrix and a bias for each child, or one for all children where a layer shares its weight. Activations
    sum to one over the parents.

    >>> router = SelfRouting()
    >>> router.prepare(6, 3, 8, 4)
    >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "self_routing"
    # The matrix belongs to a child and a parent, so that none can be exchanged; and nothing is iterated.
    laws = Router.laws - {
        "iterations_are_counted",
        "one_iteration_is_uniform",
        "permuting_children_changes_nothing",
        "permuting_parents_permutes",
    }

    def __init__(self) -> None:
        super().__init__()
        self.route_weight: nn.Parameter | None = None  # [I, J, P]
        self.route_bias: nn.Parameter | None = None  # [I, J]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.route_weight)
        shape = (out_caps,) if in_caps is None else (in_caps, out_caps)
        self.route_weight = nn.Parameter(torch.empty(*shape, in_dim))
        self.route_bias = nn.Parameter(torch.zeros(shape))
        nn.init.normal_(self.route_weight, std=0.1)

    def options(self) -> dict[str, Any]:
        return {}

    def learned(self) -> dict[str, Any]:
        """The parameters, as the routing in `ops` names them."""
        return {"route_weight": prepared(self.route_weight), "route_bias": prepared(self.route_bias)}

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        given = super().inputs(votes, children, bias=bias, window=window)
        return {**given, "activations": children.activations, "poses": children.poses, **self.learned()}

    def route(
        self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, backend: str = "auto"
    ) -> Capsules:
        twin = _dispatch.twin(backend, self.algorithm, children.poses, weight)
        if twin is None:
            return super().route(children, weight)
        return twin.route(children.poses, weight, activations=children.activations, **self.learned())
