"""The C++ kernel of self-routing: sums of votes with a given coupling, without stored votes (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.grid import Pairs, attend_grid_weighted
from torchcaps.ops._attention_pass.steps import sum_votes
from torchcaps.ops._flops import Cost, dense_votes
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.self_routing import recompute
from torchcaps.ops.self_routing.reference import MASS_FLOOR, check_route, routing_logits
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules

# Samples from which on the kernel of grids, which computes one per lane, is faster than that of a dense layer.
LARGE = 4


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    route_weight: Tensor,
    route_bias: Tensor | None = None,
    softmax: ParentSoftmax | None = None,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `self_routing`.

    With a weight for each child there are first derivatives, and the gradient of a
    gradient is an error.

    Args:
        children: The children.
        weight: Weight of the votes.
        route_weight: Weight of the routing logits [I, J, P], or [J, P] for all children.
        route_bias: Bias of the routing logits [I, J] or [J]; None for none.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    poses, activations = children
    check_poses_and_weight(poses, weight)
    if softmax is not None:
        logits = routing_logits(poses, route_weight, route_bias, weight.shape[-3])  # [B, I, J]
        return _given(children, weight, softmax(logits))
    if weight.dim() == 3:
        # Poses can be added up before they vote: two small products, and nothing left for a kernel to gain.
        return recompute.dense(children, weight, route_weight=route_weight, route_bias=route_bias)
    if activations.shape != poses.shape[:2]:
        raise ShapeError(f"activations: expected {tuple(poses.shape[:2])}, got {tuple(activations.shape)}")
    if len(poses) >= LARGE and poses.shape[1]:
        # As a grid whose window covers it: one sample per lane, and no logits in memory.
        grid = Capsules(poses[:, :, None, None], activations[:, :, None, None])  # [B, I, 1, 1, P], [B, I, 1, 1]
        window = Window((poses.shape[1], 1), (poses.shape[1], 1), pose="vector")
        parents = conv(grid, weight, window, route_weight=route_weight, route_bias=route_bias)
        return Capsules(parents.poses[:, 0, 0], parents.activations[:, 0, 0])
    logits = routing_logits(poses, route_weight, route_bias, weight.shape[-3])  # [B, I, J]
    # With the samples last, as the kernel takes them; the first logits are not needed longer.
    logits = logits.permute(1, 2, 0).contiguous()  # [I, J, B]
    total, mass = _self_routing(logits, activations.T, poses, weight)  # [B, J, D], [J, B]
    mass, present = mass.T, activations.sum(dim=1, keepdim=True)  # [B, J], [B, 1]
    out = total / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out, mass / (present + MASS_FLOOR))


def _given(children: Capsules, weight: Tensor, coupling: Tensor) -> Capsules:
    """Compute the parents from a coupling [B, I, J]."""
    poses, activations = children
    share = coupling * activations.unsqueeze(-1)  # [B, I, J]
    mass = share.sum(dim=1)  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = sum_votes(share, poses, weight) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out, presence)


@computes_wide
def conv(
    children: Capsules, weight: Tensor, window: Window, *, route_weight: Tensor, route_bias: Tensor | None = None
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `self_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        route_weight: Weight of the routing logits [I, J, P], or [J, P] for all children.
        route_bias: Bias of the routing logits [I, J] or [J]; None for none.

    Returns:
        The parents.
    """
    size, parents = children.poses.shape[4], weight.shape[1]
    count = window.places * children.poses.shape[-2]
    check_route(route_weight, route_bias, (count, parents, size))
    route = route_weight.expand(count, parents, size)  # [K*K*I, J, P]
    base = None if route_bias is None else route_bias.expand(count, parents)  # [K*K*I, J]
    total, mass = attend_grid_weighted(children, weight, window, Pairs(base=base, route=route))
    present = window.sum_children(children.activations)  # [B, H', W']
    out = total / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, H', W', J, D]
    return Capsules(out, mass / (present.unsqueeze(-1) + MASS_FLOOR))


def _check(logits: Tensor, activations: Tensor, poses: Tensor, weight: Tensor) -> None:
    check_poses_and_weight(poses, weight)
    if weight.dim() != 4:
        raise ShapeError(f"weight: expected [I, J, P, D], got {tuple(weight.shape)}")
    batch, children = poses.shape[:2]
    _native.check_shape("logits", logits, [children, weight.shape[1], batch])
    _native.check_shape("activations", activations, [children, batch])


def _shapes(logits: Tensor, activations: Tensor, poses: Tensor, weight: Tensor) -> list[list[int]]:
    return [[poses.shape[0], weight.shape[1], weight.shape[3]], [weight.shape[1], poses.shape[0]]]  # [B, J, D], [J, B]


def _cost(logits: Tensor, activations: Tensor, poses: Tensor, weight: Tensor) -> Cost:
    return Cost(dense_votes(poses, weight), 1, 0)


def _share(logits: Tensor, activations: Tensor) -> Tensor:
    return logits.softmax(dim=1).mul_(activations.unsqueeze(1))  # [I, J, B]


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    """Compute the weighted sums of votes [B, J, D] and the sums of shares [J, B].

    Only the logits [I, J, B] are saved for the backward pass, which recomputes coupling and share.
    """
    logits, activations, poses, weight = args
    share = _share(logits, activations)
    sizes = [*poses.shape[:2], *weight.shape[1:]]
    _native.call("weighted_sum_forward", [share, poses, weight, outputs[0]], sizes)
    torch.sum(share, dim=0, out=outputs[1])


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    logits, activations, poses, weight = args
    grad_logits, grad_activations, *others = outputs
    needs_share = grad_logits is not None or grad_activations is not None
    # The gradient of the share is computed in the memory of that of the logits.
    grad_share = torch.empty_like(logits) if needs_share and grad_logits is None else grad_logits
    share = _share(logits, activations)
    sizes = [*poses.shape[:2], *weight.shape[1:]]
    _native.call("weighted_sum_backward", [share, poses, weight, grads[0], grad_share, *others], sizes)
    if grad_share is None:
        return
    # Recomputed in the memory of the share: a softmax is cheap, another tensor of this size would raise the peak.
    coupling = torch.softmax(logits, dim=1, out=share)
    # With g the gradient of the share: sum(c g) is that of the activation, c (g - sum(c g)) a that of the logit.
    grad_share.add_(grads[1]).mul_(coupling)
    total = grad_share.sum(dim=1)  # [I, B]
    if grad_activations is not None:
        grad_activations.copy_(total)
    grad_share.sub_(coupling.mul_(total.unsqueeze(1))).mul_(activations.unsqueeze(1))


_self_routing = _native.native_op(
    "self_routing",
    "(Tensor logits, Tensor activations, Tensor poses, Tensor weight) -> (Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
)
