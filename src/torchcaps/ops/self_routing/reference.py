"""Self-routing as the paper states it: the definition that every kernel is tested against."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops._iterations import ParentSoftmax, Step, parent_softmax, routing_of
from torchcaps.ops.votes import check_activations, check_votes, sum_votes

# Added to every divisor: without active children, the poses and activations of the parents are zero.
MASS_FLOOR = 1e-7


def check_route(route_weight: Tensor, route_bias: Tensor | None, shape: tuple[int, int, int]) -> None:
    """Raise ShapeError unless route_weight is [I, J, P], or [J, P] for all children, and route_bias fits it.

    `shape` is (I, J, P).

    Args:
        route_weight: Weight of the routing logits [I, J, P], or [J, P] for all children.
        route_bias: Bias of the routing logits [I, J] or [J]; None for none.
        shape: (I, J, P).
    """
    if route_weight.shape not in (shape, shape[1:]):
        raise ShapeError(
            f"route_weight: expected {shape}, or {shape[1:]} shared by all children, got {tuple(route_weight.shape)}"
        )
    if route_bias is not None and route_bias.shape != route_weight.shape[:-1]:
        raise ShapeError(f"route_bias: expected {tuple(route_weight.shape[:-1])}, got {tuple(route_bias.shape)}")


def routing_logits(poses: Tensor, route_weight: Tensor, route_bias: Tensor | None, parents: int) -> Tensor:
    """Compute the routing logits [B, I, J] of children from their poses [B, I, P].

    route_weight is [I, J, P] and route_bias [I, J], or [J, P] and [J] shared by all children.

    Args:
        poses: Poses of the children [B, I, P].
        route_weight: Weight of the routing logits [I, J, P], or [J, P] for all children.
        route_bias: Bias of the routing logits [I, J] or [J]; None for none.
        parents: Number of parents.

    Returns:
        Logits [B, I, J].
    """
    check_route(route_weight, route_bias, (poses.shape[1], parents, poses.shape[2]))
    pattern = "bip,ijp->bij" if route_weight.dim() == 3 else "bip,jp->bij"
    logits = torch.einsum(pattern, poses, route_weight)  # [B, I, J]
    return logits if route_bias is None else logits + route_bias  # [B, I, J]


def self_routing_steps(
    votes: Tensor,
    activations: Tensor,
    poses: Tensor,
    *,
    route_weight: Tensor,
    route_bias: Tensor | None = None,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Let each child choose its parents from its own pose, without iterations and without agreement.

    coupling_i = softmax over the parents of (route_weight_i poses_i + route_bias_i); with share_ij = coupling_ij a_i,
    a_j = sum_i share_ij / sum_i a_i and pose_j = sum_i share_ij votes_ij / sum_i share_ij (Hahn et al. 2019).

    Args:
        votes: Predictions of every child for every parent.
        activations: Activations of the children.
        poses: Poses of the children.
        route_weight: Matrix of each child, or one that all children share.
        route_bias: Bias of each child, or one that all children share.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; activations: [B, I]; poses: [B, I, P]; route_weight: [I, J, P] or [J, P]; route_bias:
        [I, J] or [J]; poses [B, J, D], activations [B, J], which sum to 1 over the parents, coupling [B, I, J].

    Yields:
        One step.

    Raises:
        ShapeError: If the shapes do not fit.

    Example:
        >>> votes, activations, poses = torch.randn(2, 6, 3, 8), torch.rand(2, 6), torch.randn(2, 6, 4)
        >>> out = self_routing(votes, activations, poses, route_weight=torch.randn(3, 4))
        >>> out.poses.shape, torch.allclose(out.activations.sum(-1), torch.ones(2))
        (torch.Size([2, 3, 8]), True)
    """
    check_votes(votes)
    check_activations(activations, votes)
    if poses.dim() != 3 or poses.shape[:2] != votes.shape[:2]:
        raise ShapeError(f"poses: expected [{votes.shape[0]}, {votes.shape[1]}, P], got {tuple(poses.shape)}")
    logits = routing_logits(poses, route_weight, route_bias, votes.shape[2])  # [B, I, J]
    coupling = softmax(logits)  # [B, I, J]
    share = coupling * activations.unsqueeze(-1)  # [B, I, J]
    mass = share.sum(dim=1)  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = sum_votes(share, votes) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    yield Step(logits, coupling, out, presence)


self_routing = routing_of(self_routing_steps)
