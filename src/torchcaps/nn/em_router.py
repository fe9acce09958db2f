"""The router of matrix capsules, with the two prices that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers import ROUTERS, Router
from torchcaps.ops._steps import ParentSoftmax, parent_softmax
from torchcaps.ops.em.reference import Covariance, check_em_options
from torchcaps.ops.em.schedules import InverseTemp, inverse_temps
from torchcaps.types import Capsules, Routed, Trace


@ROUTERS.register("em")
class EMRouting(Router):
    """Routing by expectation-maximisation (Hinton et al. 2018); see `ops.em_routing` for the options.

    It learns, for each parent, the price of describing one child's vote in one dimension (`beta_u`) and the price of
    being inactive (`beta_a`). `schedule` is the inverse temperature of each iteration and `scale` a factor on it: the
    released code takes a quarter in its class layer.

    >>> router = EMRouting(iters=2, schedule="linear")
    >>> router.prepare(6, 3, 16, 16)
    >>> router(torch.randn(2, 6, 3, 16), Capsules(torch.randn(2, 6, 16), torch.rand(2, 6))).activations.shape
    torch.Size([2, 3])
    """

    algorithm = "em"

    def __init__(
        self,
        iters: int = 3,
        *,
        schedule: InverseTemp = "paper",
        scale: float = 1.0,
        covariance: Covariance = "diagonal",
        variance_floor: float = 5e-4,
        momentum: float = 0.0,
    ) -> None:
        super().__init__()
        check_em_options(covariance, variance_floor, momentum)
        self.iters = iters
        self.inverse_temp = tuple(scale * value for value in inverse_temps(schedule, iters))
        self.covariance: Covariance = covariance
        self.variance_floor = variance_floor
        self.momentum = momentum
        self.beta_u: nn.Parameter | None = None  # [J]
        self.beta_a: nn.Parameter | None = None  # [J]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        if self.beta_u is not None:
            raise ConfigError(
                "routing: expected a router of the layer's own, got one that serves another layer already"
            )
        self.beta_u = nn.Parameter(torch.zeros(out_caps))
        self.beta_a = nn.Parameter(torch.zeros(out_caps))

    def options(self) -> dict[str, Any]:
        return {
            "iters": self.iters,
            "inverse_temp": self.inverse_temp,
            "covariance": self.covariance,
            "variance_floor": self.variance_floor,
            "momentum": self.momentum,
        }

    def forward(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        softmax: ParentSoftmax = parent_softmax,
    ) -> Routed:
        beta_u, beta_a = self._betas()
        options = self.options()
        return ops.em_routing(votes, children.activations, beta_u=beta_u, beta_a=beta_a, softmax=softmax, **options)

    def trace(
        self,
        votes: Tensor,
        children: Capsules,
        *,
        bias: Tensor | None = None,
        softmax: ParentSoftmax = parent_softmax,
    ) -> Trace:
        beta_u, beta_a = self._betas()
        options = self.options()
        return ops.trace("em", votes, children.activations, beta_u=beta_u, beta_a=beta_a, softmax=softmax, **options)

    def _betas(self) -> tuple[Tensor, Tensor]:
        if self.beta_u is None or self.beta_a is None:
            raise ConfigError("routing: expected a router that a layer has prepared, got a new one")
        return self.beta_u, self.beta_a
