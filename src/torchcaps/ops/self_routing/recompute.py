"""Self-routing as matrix products: the coupling does not depend on the votes, so that none is stored."""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._weighted_votes import weighted_votes
from torchcaps.ops.self_routing.reference import MASS_FLOOR, routing_logits
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules


@computes_wide
def dense(children: Capsules, weight: Tensor, *, route_weight: Tensor, route_bias: Tensor | None = None) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `self_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        route_weight: Weight of the routing logits [I, J, P], or [J, P] for all children.
        route_bias: Bias of the routing logits [I, J] or [J]; None for none.

    Returns:
        The parents.
    """
    poses, activations = children
    check_poses_and_weight(poses, weight)
    logits = routing_logits(poses, route_weight, route_bias, weight.shape[-3])  # [B, I, J]
    # With the parents first, since the votes are summed parent by parent.
    share = logits.permute(2, 0, 1).contiguous().softmax(dim=0) * activations  # [J, B, I]
    mass = share.sum(dim=-1).T  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = weighted_votes(share, poses, weight) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    return Capsules(out, presence)
