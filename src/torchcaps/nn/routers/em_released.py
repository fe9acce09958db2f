"""EM routing with the options and the parameters of the authors' released program, for comparison with it alone."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers.base import check_unprepared, prepared
from torchcaps.nn.routers.em import EMRouting
from torchcaps.ops.em.released import released_softmax
from torchcaps.types import Capsules

VARIANCE_FLOOR = 5e-4
# What the program multiplies its activation biases by. Our costs are half of its: they count deviations, not variances.
GAIN, FAST_GAIN = 5000 / 2, 50 * 16 / 2
# Cost of a Gaussian of unit variance per dimension, twice.
UNIT_COST = math.log(2 * math.pi) + 1


class ReleasedEMRouting(EMRouting):
    """EM routing as the authors' released program computes it; `EMRouting.released` makes one.

    The default variant competes among positions, for each type of parent by itself, and groups them by mistake where
    the stride is not 1; see `ops.em.released`. The learned parameters are the program's, so that a step of an optimiser
    is the same step: `beta_u = sigma_biases (ln 2 pi + 1) / 2` and `beta_a = -2500 activation_biases`. In the fast
    variant of a convolutional layer `beta_u = (ln(sigma_biases^2 + 5e-4) + ln 2 pi + 1) / 2` and `beta_a = -400
    activation_biases`.

    Args:
        iters: Number of routing iterations.
        layer: 'conv' for a convolutional layer, 'class' for the class layer.
        fast: The fast variant of the program's convolutional layers; its class layer has one variant.

    Attributes:
        sigma_biases: One number per parent type [J].
        activation_biases: One number per parent type [J].

    Shape:
        As in `EMRouting`.

    Raises:
        ConfigError: If `layer` is unknown.

    Example:
        >>> router = ReleasedEMRouting(layer="class")
        >>> router.prepare(6, 3, 16, 16)
        >>> [tuple(parameter.shape) for parameter in router.parameters()]
        [(3,), (3,)]
    """

    parent_axes = (("sigma_biases", 0), ("activation_biases", 0))

    def __init__(self, iters: int = 3, *, layer: Literal["conv", "class"] = "conv", fast: bool = False) -> None:
        if layer not in ("conv", "class"):
            raise ConfigError(f"layer: expected one of conv, class, got '{layer}'")
        quick = fast and layer == "conv"
        super().__init__(
            iters,
            schedule="released",
            scale=0.25 if layer == "class" else 4.0 if quick else 1.0,
            normalise=False,
            variance_floor=VARIANCE_FLOOR,
            momentum=0.1,
            start="types",
            mass_floor=1e-5 if layer == "class" else 1e-7,
        )
        self.layer: Literal["conv", "class"] = layer
        self.fast = fast
        self.log_sigma = quick
        self.sigma_biases: nn.Parameter | None = None  # [J]
        self.activation_biases: nn.Parameter | None = None  # [J]

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
        check_unprepared(self.sigma_biases)
        self.out_dim = out_dim
        self.sigma_biases = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        self.activation_biases = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the biases to the initial values of the program."""
        if self.sigma_biases is None or self.activation_biases is None:
            return
        classes = self.layer == "class"
        nn.init.constant_(self.sigma_biases, 2.0 if classes else 0.5)
        nn.init.constant_(self.activation_biases, 1.0 if classes else 0.2 if self.log_sigma else 0.5)

    def betas(self) -> tuple[Tensor, Tensor]:
        sigma, active = prepared(self.sigma_biases), prepared(self.activation_biases)
        if self.log_sigma:
            return ((sigma.square() + VARIANCE_FLOOR).log() + UNIT_COST) / 2, -FAST_GAIN * active
        return sigma * UNIT_COST / 2, -GAIN * active

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "layer": self.layer, "fast": self.fast}

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        params = super().params(children, window)
        if self.layer == "conv" and window is not None:
            params["softmax"] = released_softmax(window, fast=self.fast)
        return params
