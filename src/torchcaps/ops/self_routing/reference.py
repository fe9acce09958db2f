"""Self-routing as the paper states it: the definition that every fast twin is held to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, last_step, parent_softmax
from torchcaps.ops.votes import check_activations, check_votes
from torchcaps.types import Routed

# Added to what is divided by, so that children who are not there give parents of pose and activation zero.
MASS_FLOOR = 1e-7


def routing_logits(poses: Tensor, route_weight: Tensor, route_bias: Tensor | None) -> Tensor:
    """What the children's own networks say of the parents: poses [B, I, P] give logits [B, I, J].

    route_weight is [I, J, P] and route_bias [I, J], or [J, P] and [J] shared by all children.
    """
    if route_weight.dim() not in (2, 3) or route_weight.shape[-1] != poses.shape[-1]:
        raise ShapeError(
            f"route_weight: expected [I, J, {poses.shape[-1]}], or [J, {poses.shape[-1]}] shared by all children, "
            f"got {tuple(route_weight.shape)}"
        )
    if route_weight.dim() == 3 and route_weight.shape[0] != poses.shape[1]:
        raise ShapeError(f"poses: expected {route_weight.shape[0]} children, got {tuple(poses.shape)}")
    if route_bias is not None and route_bias.shape != route_weight.shape[:-1]:
        raise ShapeError(f"route_bias: expected {tuple(route_weight.shape[:-1])}, got {tuple(route_bias.shape)}")
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
    """Give the one iteration that there is; see `self_routing`."""
    check_votes(votes)
    check_activations(activations, votes)
    if poses.dim() != 3 or poses.shape[:2] != votes.shape[:2]:
        raise ShapeError(f"poses: expected [{votes.shape[0]}, {votes.shape[1]}, P], got {tuple(poses.shape)}")
    logits = routing_logits(poses, route_weight, route_bias)  # [B, I, J]
    if logits.shape[2] != votes.shape[2]:
        raise ShapeError(f"route_weight: expected {votes.shape[2]} parents, got {tuple(route_weight.shape)}")
    coupling = softmax(logits)  # [B, I, J]
    share = coupling * activations.unsqueeze(-1)  # [B, I, J]
    mass = share.sum(dim=1)  # [B, J]
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    out = torch.einsum("bij,bijd->bjd", share, votes) / (mass.unsqueeze(-1) + MASS_FLOOR)  # [B, J, D]
    yield Step(logits, coupling, out, presence)


def self_routing(
    votes: Tensor,
    activations: Tensor,
    poses: Tensor,
    *,
    route_weight: Tensor,
    route_bias: Tensor | None = None,
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Let each child decide by itself, from its own pose, which parents it belongs to.

    coupling_i = softmax over parents of (route_weight_i poses_i + route_bias_i); with share_ij = coupling_ij a_i,
    a_j = sum_i share_ij / sum_i a_i and pose_j = sum_i share_ij votes_ij / sum_i share_ij (Hahn et al. 2019).
    There are no iterations: nobody asks whether votes agree. votes [B, I, J, D], activations [B, I], poses [B, I, P],
    route_weight [I, J, P] and route_bias [I, J] (or [J, P] and [J], shared by all children) give poses [B, J, D],
    activations [B, J], which sum to one over the parents, and coupling [B, I, J]. `softmax` as in `dynamic_routing`.

    >>> votes, activations, poses = torch.randn(2, 6, 3, 8), torch.rand(2, 6), torch.randn(2, 6, 4)
    >>> out = self_routing(votes, activations, poses, route_weight=torch.randn(3, 4))
    >>> out.poses.shape, torch.allclose(out.activations.sum(-1), torch.ones(2))
    (torch.Size([2, 3, 8]), True)
    """
    last = last_step(
        self_routing_steps(votes, activations, poses, route_weight=route_weight, route_bias=route_bias, softmax=softmax)
    )
    return Routed(last.poses, last.activations, last.coupling)
