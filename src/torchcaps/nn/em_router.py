"""The router of matrix capsules, with the two prices that it learns."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers import ROUTERS, Router, prepared, unprepared
from torchcaps.ops import _dispatch
from torchcaps.ops.em import cpu as em_cpu
from torchcaps.ops.em.reference import Covariance, check_em_options
from torchcaps.ops.em.schedules import InverseTemp, inverse_temps
from torchcaps.types import Capsules


class EMRouting(Router):
    """Routing by expectation-maximisation (Hinton et al. 2018); see `ops.em_routing` for the options.

    It learns, for each parent, the price of describing one child's vote in one dimension (`beta_u`) and the price of
    being inactive (`beta_a`). `schedule` is the inverse temperature of each iteration and `scale` a factor on it: the
    released code takes a quarter in its class layer. With `normalise` costs count per child: a parent's cost is divided
    by the number of children that fall to a parent on average, so that one temperature fits a small kernel and a class
    layer that sees the whole grid. In the terms of the paper, the inverse temperature is divided by that number and
    `beta_a` multiplied by it. `variance_floor` sets the scale on which votes agree; it is larger than the 5e-4 of the
    released code, because parents that have two or three children each fall upon single votes without it.

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
        normalise: bool = True,
        covariance: Covariance = "diagonal",
        variance_floor: float = 0.1,
        momentum: float = 0.0,
    ) -> None:
        super().__init__()
        check_em_options(covariance, variance_floor, momentum)
        if not 0 < scale < math.inf:
            raise ConfigError(f"scale: expected a finite number above 0, got {scale}")
        self.iters = iters
        self.inverse_temp = tuple(scale * value for value in inverse_temps(schedule, iters))
        self.normalise = normalise
        # The average counts every child, also one that is not active.
        if normalise:
            self.laws = self.laws - {"absent_child_has_no_vote"}
        self.covariance: Covariance = covariance
        self.variance_floor = variance_floor
        self.momentum = momentum
        self.beta_u: nn.Parameter | None = None  # [J]
        self.beta_a: nn.Parameter | None = None  # [J]

    # At zero the price of a child is ln sigma, below zero while votes lie closer than one: more children make a parent
    # more active from the start. A beta_u that makes up for ln sigma would let activations start blind to the children.
    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.beta_u)
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

    def prices(self, load: float) -> dict[str, Any]:
        """The betas and inverse temperatures where a parent has `load` children on average."""
        beta_u, beta_a = prepared(self.beta_u), prepared(self.beta_a)  # [J]
        if not self.normalise:
            return {"beta_u": beta_u, "beta_a": beta_a, "inverse_temp": self.inverse_temp}
        inverse_temp = tuple(value / load for value in self.inverse_temp)
        return {"beta_u": beta_u, "beta_a": load * beta_a, "inverse_temp": inverse_temp}

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        count, parents = votes.shape[1:3]
        load = count / parents if window is None else window.load(count // math.prod(window.kernel), parents)
        given = super().inputs(votes, children, bias=bias, window=window)
        return {**given, "activations": children.activations, **self.prices(load)}

    def convolve(self, children: Capsules, weight: Tensor, window: ops.Window, *, backend: str = "auto") -> Capsules:
        reason = self._no_twin(weight, window)
        if reason is not None and backend == "cpu":
            raise ConfigError(f"backend: expected 'auto' or 'reference' ({reason}), got 'cpu'")
        dtype = torch.promote_types(children.poses.dtype, weight.dtype)
        if reason is None and _dispatch.choose(backend, self.algorithm, weight.device, dtype) == "cpu":
            prices = self.prices(window.load(children.poses.shape[3], weight.shape[1]))
            return em_cpu.convolve(children, weight, window, variance_floor=self.variance_floor, **prices)
        return super().convolve(children, weight, window)

    def _no_twin(self, weight: Tensor, window: ops.Window) -> str | None:
        """None where the fast twin can serve, otherwise the reason."""
        if self.covariance != "diagonal" or self.momentum:
            return "the kernel has a diagonal covariance and no momentum"
        if window.pose != "matrix" or weight.shape[-1] != em_cpu.SIDE:
            return "the kernel has 4x4 pose matrices"
        return None


ROUTERS.add("em", EMRouting)
