"""The lean twin of self-routing: the coupling is known before any vote is, so that none has to be stored."""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops import _weighted
from torchcaps.ops.self_routing.reference import MASS_FLOOR, routing_logits
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules

why_not, describe = _weighted.why_not, _weighted.describe


def route(
    poses: Tensor,
    weight: Tensor,
    *,
    activations: Tensor,
    route_weight: Tensor,
    route_bias: Tensor | None = None,
) -> Capsules:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `self_routing`.

    >>> import torch
    >>> poses, activations, weight = torch.randn(2, 5, 8), torch.rand(2, 5), torch.randn(5, 3, 8, 4)
    >>> out = route(poses, weight, activations=activations, route_weight=torch.ones(3, 8))
    >>> out.poses.shape
    torch.Size([2, 3, 4])
    """
    check_poses_and_weight(poses, weight)
    logits = routing_logits(poses, route_weight, route_bias)  # [B, I, J]
    # With the parents first, since the votes are summed parent by parent.
    share = logits.permute(2, 0, 1).contiguous().softmax(dim=0) * activations  # [J, B, I]
    mass = share.sum(dim=-1).T  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = _weighted.weighted_votes(share, poses, weight) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out, presence)
