"""The router of variational Bayes, with the two costs that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps import ops
from torchcaps.nn.routers.base import ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops._iterations import check_iters
from torchcaps.ops.em.reference import Covariance
from torchcaps.types import Capsules


@ROUTERS.register("variational")
class VariationalRouting(Router):
    """Routing by variational Bayes: EM with priors (Ribeiro et al. 2020); see `ops.variational_routing`.

    The router learns two costs for each parent. `beta_u` starts at minus the entropy of the prior: a parent whose
    children reduce that entropy has an activation above one half.

    Args:
        iters: Number of routing iterations.
        covariance: `diagonal` or `full` precision.
        concentration: Prior of the mixing weights.
        strength: Prior of the means about zero.
        scatter: Prior of the votes about the mean.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
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
        self.covariance: Covariance = covariance
        self.concentration = concentration
        self.strength = strength
        self.scatter = scatter
        self.prior = ops.Prior(covariance, concentration, strength, scatter)
        self.prior.check()
        self._first_beta_u = 0.0
        self.beta_u: nn.Parameter | None = None  # [J]
        self.beta_a: nn.Parameter | None = None  # [J]

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
        check_unprepared(self.beta_u)
        self._first_beta_u = -self.prior.entropy(out_dim)
        self.beta_u = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        self.beta_a = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `beta_u` to minus the entropy of the prior and `beta_a` to 0."""
        if self.beta_u is not None and self.beta_a is not None:
            nn.init.constant_(self.beta_u, self._first_beta_u)
            nn.init.zeros_(self.beta_a)

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        return {
            "iters": self.iters,
            "prior": self.prior,
            "beta_u": prepared(self.beta_u),
            "beta_a": prepared(self.beta_a),
        }
