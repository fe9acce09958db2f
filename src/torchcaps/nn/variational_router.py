"""The router of variational Bayes, with the two prices that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.nn.routers import ROUTERS, Router, prepared, unprepared
from torchcaps.ops._steps import check_iters
from torchcaps.ops.em.reference import Covariance
from torchcaps.types import Capsules


@ROUTERS.register("variational")
class VariationalRouting(Router):
    """Routing by variational Bayes: EM with priors (Ribeiro et al. 2020); see `ops.variational_routing`.

    `concentration`, `strength` and `scatter` are the prior's: of the mixing weights, of the means about zero, and of
    the votes about the mean. It learns two prices for each parent. `beta_u` starts at minus the entropy of the prior,
    so that a parent is more active than not as soon as its children make it surer than none would.

    >>> router = VariationalRouting(iters=2)
    >>> router.prepare(6, 3, 16, 16)
    >>> router(torch.randn(2, 6, 3, 16), Capsules(torch.randn(2, 6, 16), torch.rand(2, 6))).activations.shape
    torch.Size([2, 3])
    """

    algorithm = "variational"

    def __init__(
        self,
        iters: int = 3,
        *,
        covariance: Covariance = "diagonal",
        concentration: float = 1.0,
        strength: float = 1.0,
        scatter: float = 1.0,
    ) -> None:
        super().__init__()
        check_iters(iters)
        self.iters = iters
        self.prior = ops.Prior(covariance, concentration, strength, scatter)
        self.prior.check()
        self.beta_u: nn.Parameter | None = None  # [J]
        self.beta_a: nn.Parameter | None = None  # [J]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.beta_u)
        self.beta_u = nn.Parameter(torch.full((out_caps,), -self.prior.entropy(out_dim)))
        self.beta_a = nn.Parameter(torch.zeros(out_caps))

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "prior": self.prior}

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        return {
            **super().inputs(votes, children, bias=bias, window=window),
            "activations": children.activations,
            "beta_u": prepared(self.beta_u),
            "beta_a": prepared(self.beta_a),
        }
