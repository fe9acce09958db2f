"""The Triton kernel of EM routing: passes over the votes with Gaussians between them, without storing votes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ShapeError
from torchcaps.ops._iterations import Background
from torchcaps.ops._triton import device
from torchcaps.ops._triton.attend import attend_weighted
from torchcaps.ops._triton.gaussian import moments
from torchcaps.ops._triton.layer import Layer
from torchcaps.ops.conv import Window
from torchcaps.ops.em.reference import MASS_FLOOR, Covariance, Start, check_background, check_em_options
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
from torchcaps.types import Capsules


def unsupported(
    children: Capsules,
    weight: Tensor,
    *,
    window: Window | None = None,
    covariance: Covariance = "diagonal",
    **params: Any,
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: The weight.
        window: The window of a convolutional layer, or None.
        covariance: Kind of covariance.
        **params: Other arguments of the routing.

    Returns:
        The reason, or None if it computes the case.
    """
    if covariance != "diagonal":
        return "the kernel has a diagonal covariance"
    if window is not None and window.competition == "positions":
        window, weight = replace(window, competition="global"), weight[:, :1]
    return device.unsupported(children, weight, window=window)


def route(layer: Layer, *, beta_u: Tensor, beta_a: Tensor, **options: Any) -> Capsules:
    """Route a dense or convolutional layer; see `em_routing`, and README.md for the formulas of a pass.

    Where each type of parents competes by itself, the types are routed one after the other.

    Args:
        layer: Children and weight.
        beta_u: Cost of describing one child's vote in one dimension.
        beta_a: Cost of leaving a parent inactive.
        **options: Further options of `em_routing`.

    Shape:
        betas: [J]; returns poses [B, positions, J, D], activations [B, positions, J].

    Returns:
        The parents.
    """
    parents = layer.weight.shape[1]
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        if beta.shape != (parents,):
            raise ShapeError(f"{name}: expected {(parents,)}, got {tuple(beta.shape)}")
    if not layer.alone:
        return _route(layer, 1, beta_u=beta_u, beta_a=beta_a, **options)
    betas = zip(beta_u.split(1), beta_a.split(1), strict=True)
    alone = [
        _route(layer._replace(weight=weight), parents, beta_u=own_u, beta_a=own_a, **options)
        for weight, (own_u, own_a) in zip(layer.weight.split(1, dim=1), betas, strict=True)
    ]
    return Capsules(*(torch.cat(part, dim=2) for part in zip(*alone, strict=True)))


def _route(
    layer: Layer,
    others: int,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    inverse_temp: InverseTemp = "paper",
    covariance: Covariance = "diagonal",
    variance_floor: float = 0.1,
    momentum: float = 0.0,
    sharpness: Sharpness = 1.0,
    background: Background = None,
    start: Start = "parents",
    mass_floor: float = MASS_FLOOR,
    load: Tensor | None = None,
) -> Capsules:
    """Route the types of a layer that compete, one of `others` sets of types that do so by themselves."""
    check_em_options(covariance, variance_floor, momentum, start, mass_floor)
    check_background(background)
    temps, sharp = inverse_temps(inverse_temp, iters), sharpnesses(sharpness, iters)
    none = None if background is None else torch.as_tensor(background, dtype=layer.dtype, device=layer.poses.device)
    same = start == "types"
    # The first coupling is 1/J for the J types of all sets.
    part = 1 / others if same else 1.0
    total, mass = (part * value for value in attend_weighted(layer, local=same))  # [B, positions, J, D] and [.., J]
    whole = (mass + mass_floor).unsqueeze(-1)  # [B, positions, J, 1]
    mean = (1 - momentum) * total / whole  # [B, positions, J, D]
    variance = part * moments(layer, mean, local=same).second / whole + variance_floor  # [B, positions, J, D]
    size = mean.shape[-1]
    shared = 1 if load is None else load.view(len(mean), -1, 1).to(mean)  # [B, positions, 1]
    activity = mass  # [B, positions, J]
    for iteration, inverse in enumerate(temps):
        if iteration:
            factor, log_det = sharp[iteration - 1], variance.log().sum(dim=-1)  # [B, positions, J]
            level = F.logsigmoid(activity) - factor / 2 * (log_det + size * math.log(2 * math.pi))  # [B, positions, J]
            density = (factor / 2 / variance, level)
            mass, first, second = moments(layer, mean, density, None if none is None else none.view(1))
            whole = (mass + mass_floor).unsqueeze(-1)  # [B, positions, J, 1]
            # How far the mean moves, without the difference of two large numbers: sum r v = first + mass mean.
            moved = (1 - momentum) * (first - mass_floor * mean) / whole  # [B, positions, J, D]
            spread = second - moved * (2 * first - moved * mass.unsqueeze(-1))  # [B, positions, J, D]
            mean, variance = mean + moved, spread / whole + variance_floor
        cost = (size * beta_u + 0.5 * variance.log().sum(dim=-1)) * mass / shared  # [B, positions, J]
        activity = inverse * (beta_a - cost)  # [B, positions, J]
    return Capsules(mean, activity.sigmoid())
