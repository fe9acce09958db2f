"""The router of matrix capsules, with the two costs that it learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers.base import ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops.em.reference import MASS_FLOOR, Covariance, Start, check_background, check_em_options
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
from torchcaps.types import Capsules

# The activation of a child that `beta_a_init="floor"` reckons with.
FILL = 0.75

E = TypeVar("E", bound="EMRouting")


@ROUTERS.register("em")
class EMRouting(Router):
    """Routing by expectation-maximisation (Hinton et al. 2018); see `ops.em_routing` for the algorithm.

    The router learns, for each parent, the cost of describing one child's vote in one dimension (`beta_u`) and the cost
    of being inactive (`beta_a`).

    Args:
        iters: Number of routing iterations.
        schedule: Inverse temperature of each iteration: a name, a number, one per iteration or a function.
        scale: Factor on the inverse temperature.
        normalise: Count costs per child: a parent's cost is divided by the number of children that fall to a parent on
            average, so that one temperature fits a small kernel and a class layer that sees the whole grid. In the
            terms of the paper, the inverse temperature is divided by that number and `beta_a` multiplied by it.
        covariance: 'diagonal' or 'full'.
        variance_floor: Added to the variances. It sets the scale on which votes agree. It is larger than the 5e-4 of
            the released program: with that, parents that have two or three children each collapse onto single votes.
        momentum: Part of the old mean that stays; the mean before the first iteration is zero.
        sharpness: Factor on the log density in the E-step, a number or one per iteration.
        background: Logit of belonging to no parent; None for no background.
        learn_background: Learn the background, from the value given.
        start: First coupling, 'parents' or 'types'.
        mass_floor: Added to the sum of the shares of a parent.
        beta_u_init: Initial `beta_u`. At zero the cost of a child is ln sigma, below zero while votes lie closer than
            one: more children make a parent more active from the start.
        beta_a_init: Initial `beta_a`. With 'floor' a parent with the average number of children, whose votes have the
            variance of the floor, starts with an activation of 0.5: 0.75 D (beta_u + ln(variance_floor) / 2), where
            0.75 stands for the activation of a child.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> router = EMRouting(iters=2, schedule="linear")
        >>> router.prepare(6, 3, 16, 16)
        >>> router(torch.randn(2, 6, 3, 16), Capsules(torch.randn(2, 6, 16), torch.rand(2, 6))).activations.shape
        torch.Size([2, 3])
    """

    algorithm = "em"
    parent_axes = (("beta_u", 0), ("beta_a", 0))

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
        sharpness: Sharpness = 1.0,
        background: float | None = None,
        learn_background: bool = False,
        start: Start = "parents",
        mass_floor: float = MASS_FLOOR,
        beta_u_init: float = 0.0,
        beta_a_init: float | Literal["floor"] = 0.0,
    ) -> None:
        super().__init__()
        check_em_options(covariance, variance_floor, momentum, start, mass_floor)
        check_background(background)
        if not 0 < scale < math.inf:
            raise ConfigError(f"scale: expected a finite number above 0, got {scale}")
        if learn_background and background is None:
            raise ConfigError("learn_background: expected False without a background, got True")
        _check_betas(beta_u_init, beta_a_init, normalise)
        self.iters = iters
        self.schedule = schedule
        self.scale = scale
        self.inverse_temp = self._scaled_schedule(iters)
        self.sharpness = sharpness
        sharpnesses(sharpness, iters)
        self.normalise = normalise
        # The average counts every child, also one that is not active.
        if normalise:
            self.laws = self.laws - {"absent_child_has_no_vote"}
        if background is not None:
            self.laws = self.laws - {"coupling_sums_to_one"}
        self.covariance: Covariance = covariance
        self.variance_floor = variance_floor
        self.momentum = momentum
        self.background_init = background
        self.learn_background = learn_background
        self.start: Start = start
        self.mass_floor = mass_floor
        self.beta_u_init = beta_u_init
        self.beta_a_init: float | Literal["floor"] = beta_a_init
        self.beta_u: nn.Parameter | None = None  # [J]
        self.beta_a: nn.Parameter | None = None  # [J]
        self.background: nn.Parameter | None = None  # []

    @classmethod
    def released(cls, iters: int = 3, *, layer: Literal["conv", "class"] = "conv", fast: bool = False) -> EMRouting:
        """Make the routing of the authors' released program, for comparison with it.

        Its outputs and gradients are those of the program, for the same votes and parameters, to rounding; see
        `torchcaps.nn.routers.em_released`.

        Args:
            iters: Number of routing iterations.
            layer: 'conv' for a convolutional layer, 'class' for the class layer.
            fast: The fast variant of the program's convolutional layers; its class layer has one variant.

        Returns:
            A router with the parameters of the program, `sigma_biases` and `activation_biases`, at its initial values.

        Raises:
            ConfigError: If `layer` is unknown.
        """
        from torchcaps.nn.routers.em_released import ReleasedEMRouting

        return ReleasedEMRouting(iters, layer=layer, fast=fast)

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
        self.out_dim = out_dim
        self.beta_u = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        self.beta_a = nn.Parameter(torch.empty(out_caps, device=device, dtype=dtype))
        if self.learn_background:
            self.background = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the betas and a learned background to their initial values."""
        if self.beta_u is None or self.beta_a is None:
            return
        beta_a = self.beta_a_init
        if beta_a == "floor":
            beta_a = FILL * self.out_dim * (self.beta_u_init + 0.5 * math.log(self.variance_floor))
        nn.init.constant_(self.beta_u, self.beta_u_init)
        nn.init.constant_(self.beta_a, beta_a)
        if self.background is not None:
            nn.init.constant_(self.background, cast(float, self.background_init))

    def betas(self) -> tuple[Tensor, Tensor]:
        """Return the cost of describing one child in one dimension and the cost of being inactive, each [J]."""
        return prepared(self.beta_u), prepared(self.beta_a)

    def options(self) -> dict[str, Any]:
        names = (name for name in self._option_names if name != "background")
        return {**{name: getattr(self, name) for name in names}, "background": self.background_init}

    def with_iters(self: E, iters: int) -> E:
        other = super().with_iters(iters)
        other.inverse_temp = other._scaled_schedule(iters)
        # One number per iteration: the first ones, or the last one again.
        if isinstance(other.sharpness, Sequence):
            known = list(other.sharpness)
            other.sharpness = tuple((known + known[-1:] * iters)[:iters])
        return other

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        load = self._children_per_parent(children, window) if self.normalise else 1
        beta_u, beta_a = self.betas()
        return {
            "beta_u": beta_u,
            "beta_a": load * beta_a if self.normalise else beta_a,
            "iters": self.iters,
            "inverse_temp": tuple(value / load for value in self.inverse_temp),
            "covariance": self.covariance,
            "variance_floor": self.variance_floor,
            "momentum": self.momentum,
            "sharpness": self.sharpness,
            "background": self.background_init if self.background is None else self.background,
            "start": self.start,
            "mass_floor": self.mass_floor,
        }

    def masked_params(self, children: Capsules, mask: Tensor, window: ops.Window | None = None) -> dict[str, Any]:
        params = self.params(children, window)
        if not self.normalise:
            return params
        present = mask.to(torch.promote_types(children.poses.dtype, torch.float32))
        share = present.mean(dim=1) if window is None else window.present_share(present)  # [B]
        load = self._children_per_parent(children, window) * share  # [B]
        # A sample without children has no parents, and its load no meaning.
        load = load.masked_fill(share == 0, 1)  # [B]
        if window is not None:
            load = load.repeat_interleave(math.prod(window.positions))  # [B*H'*W']
        return {**params, "beta_a": self.betas()[1], "inverse_temp": tuple(self.inverse_temp), "load": load}

    def _scaled_schedule(self, iters: int) -> tuple[float, ...]:
        return tuple(self.scale * value for value in inverse_temps(self.schedule, iters))

    def _children_per_parent(self, children: Capsules, window: ops.Window | None) -> float:
        count, parents = children.poses.shape[-2], len(self.betas()[0])
        if window is None:
            return count / parents
        # A grid has its types in this axis; gathered children have them once for every place of the kernel.
        types = count if children.poses.dim() > 3 else count // window.places
        return window.children_per_parent(types, parents)


def _check_betas(beta_u: float, beta_a: float | str, normalise: bool) -> None:
    """Raise unless the betas start at finite numbers, or beta_a from the floor where costs count per child."""
    for name, value in (("beta_u_init", beta_u), ("beta_a_init", beta_a)):
        if name == "beta_a_init" and value == "floor":
            continue
        if isinstance(value, str | bool) or not math.isfinite(value):
            raise ConfigError(f"{name}: expected a finite number, got {value!r}")
    if beta_a == "floor" and not normalise:
        raise ConfigError(
            "beta_a_init: expected a number where normalise is False, got 'floor' (the number of children is not known)"
        )
