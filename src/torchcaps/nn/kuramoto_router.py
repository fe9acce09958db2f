"""The router of synchronisation, with the frequencies that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.nn.routers import ROUTERS, Router, prepared, unprepared
from torchcaps.ops.kuramoto.reference import check_kuramoto_options
from torchcaps.types import Capsules


@ROUTERS.register("kuramoto")
class KuramotoRouting(Router):
    """Routing by synchronisation: children and parents as oscillators on a sphere; see `ops.kuramoto_routing`.

    It learns how each parent turns by itself, from no turn at the start. The children's activations are the lengths of
    their poses, so that the votes carry them already.

    >>> router = KuramotoRouting(iters=3)
    >>> router.prepare(6, 3, 8, 4)
    >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "kuramoto"
    takes_bias = True
    laws = Router.laws - {"inactive_child_has_no_vote"}

    def __init__(self, iters: int = 3, *, gain: float = 4.0, step: float = 1.0) -> None:
        super().__init__()
        check_kuramoto_options(iters, gain, step)
        self.iters = iters
        self.gain = gain
        self.step = step
        self.omega: nn.Parameter | None = None  # [J, D, D]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.omega)
        self.omega = nn.Parameter(torch.zeros(out_caps, out_dim, out_dim))

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "gain": self.gain, "step": self.step}

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        return {**super().inputs(votes, children, bias=bias, window=window), "omega": prepared(self.omega)}
