"""The Triton kernel of self-routing: coupling from poses, sums of votes, nothing of the size of either stored."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchcaps.ops._attention_pass.grid import Pairs
from torchcaps.ops._triton import device
from torchcaps.ops._triton.attend import attend_weighted
from torchcaps.ops._triton.layer import Layer, sizes_of, sum_children
from torchcaps.ops.conv import Window
from torchcaps.ops.self_routing.reference import MASS_FLOOR, check_route
from torchcaps.types import Capsules


def unsupported(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: The weight.
        window: The window of a convolutional layer, or None.
        **params: Other arguments of the routing.

    Returns:
        The reason, or None if it computes the case.
    """
    if window is None and weight.dim() == 3:
        # Poses can be added up before they vote: two small products, and nothing left for a kernel to gain.
        return "the kernel has a weight for each child; a shared one needs two products, in backend='recompute'"
    return device.unsupported(children, weight, window=window)


def route(layer: Layer, *, route_weight: Tensor, route_bias: Tensor | None = None) -> Capsules:
    """Route a dense or convolutional layer; see `self_routing`.

    Args:
        layer: Children and weight.
        route_weight: Matrix of each child, or one that all children share.
        route_bias: Bias of each child, or one that all children share.

    Shape:
        route_weight: [C, J, P] or [J, P]; route_bias: [C, J] or [J]; returns poses [B, positions, J, D], activations
        [B, positions, J].

    Returns:
        The parents.
    """
    sizes = sizes_of(layer.poses, layer.weight, layer.window)
    pairs = (sizes.children, sizes.parents)
    check_route(route_weight, route_bias, (*pairs, sizes.size))
    base = None if route_bias is None else route_bias.expand(pairs)  # [C, J]
    total, mass = attend_weighted(layer, Pairs(base=base, route=route_weight.expand(*pairs, sizes.size)))
    present = sum_children(layer, sizes).unsqueeze(-1)  # [B, positions, 1]
    poses = total / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, positions, J, D]
    return Capsules(poses, mass / (present + MASS_FLOOR))
