"""Self-routing as matrix products: the coupling does not depend on the votes, so that none is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._pieces import split_children, without_autocast
from torchcaps.ops._weighted_votes import weighted_votes
from torchcaps.ops.self_routing.reference import MASS_FLOOR, check_route, routing_logits
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
    if weight.dim() == 3:
        logits = routing_logits(poses, route_weight, route_bias, weight.shape[-3])  # [B, I, J]
        # With the parents first, since the votes are summed parent by parent.
        share = logits.permute(2, 0, 1).contiguous().softmax(dim=0) * activations  # [J, B, I]
        total, mass = weighted_votes(share, poses, weight), share.sum(dim=-1).T  # [B, J, D], [B, J]
    else:
        count, parents, size, _ = weight.shape
        check_route(route_weight, route_bias, (count, parents, size))
        bias = weight.new_zeros(parents) if route_bias is None else route_bias
        each = route_weight.expand(count, parents, size), bias.expand(count, parents)
        total, mass = _SelfRouting.apply(poses, activations, weight, *each)
    presence = mass / (activations.sum(dim=1, keepdim=True) + MASS_FLOOR)  # [B, J]
    return Capsules(total / (mass.unsqueeze(-1) + MASS_FLOOR), presence)


class _SelfRouting(torch.autograd.Function):
    """total_j = sum_i share_ij votes_ij and mass_j = sum_i share_ij, for one piece of the children after the other.

    The backward pass computes the shares again. It consists of differentiable operations: there are second derivatives.
    """

    @staticmethod
    def forward(
        poses: Tensor, activations: Tensor, weight: Tensor, route_weight: Tensor, route_bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        _, parents, _, out_dim = weight.shape
        total = poses.new_zeros(parents, len(poses), out_dim)  # [J, B, D]
        mass = poses.new_zeros(parents, len(poses))  # [J, B]
        with without_autocast(poses.device):
            for piece in _pieces(poses, activations, weight, route_weight, route_bias):
                # Not in place: `FlopCounterMode` counts this form.
                total = torch.baddbmm(total, (piece.share.unsqueeze(2) * piece.poses).flatten(2), piece.matrices)
                mass += piece.share.sum(dim=-1)
        return total.transpose(0, 1), mass.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, of_total: Tensor, of_mass: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs = ctx.saved_tensors
        of_poses, of_activations, of_weight, of_route, of_bias = (torch.empty_like(tensor) for tensor in inputs)
        of_total, of_mass = of_total.transpose(0, 1), of_mass.T.unsqueeze(2)  # [J, B, D], [J, B, 1]
        for piece in _pieces(*inputs):
            some, share = piece.children, piece.share
            # With a share of 1 for every child.
            pull = (of_total @ piece.matrices.mT).unflatten(2, piece.poses.shape[1:])  # [J, B, P, i]
            of_share = (pull * piece.poses).sum(dim=2) + of_mass  # [J, B, i]
            of_activations[:, some] = (of_share * piece.coupling).sum(dim=0)
            of_coupling = of_share * piece.activations
            of_logits = piece.coupling * (of_coupling - (piece.coupling * of_coupling).sum(dim=0))  # [J, B, i]
            of_bias[some] = of_logits.sum(dim=1).T
            of_route[some] = torch.einsum("jbi,bpi->ijp", of_logits, piece.poses)
            of_poses[:, some] = (pull * share.unsqueeze(2)).sum(dim=0).transpose(1, 2)
            of_poses[:, some] += torch.einsum("jbi,ijp->bip", of_logits, inputs[3][some])
            found = (share.unsqueeze(2) * piece.poses).flatten(2).mT @ of_total  # [J, P*i, D]
            of_weight[some] = found.unflatten(1, (inputs[0].shape[2], -1)).permute(2, 0, 1, 3)
        return of_poses, of_activations, of_weight, of_route, of_bias


class _Piece(NamedTuple):
    """Some children of a layer, last in memory, and a matrix for each parent."""

    children: slice
    poses: Tensor  # [B, P, i]
    activations: Tensor  # [B, i]
    matrices: Tensor  # [J, P*i, D]
    coupling: Tensor  # [J, B, i]
    share: Tensor  # [J, B, i]


def _pieces(
    poses: Tensor, activations: Tensor, weight: Tensor, route_weight: Tensor, route_bias: Tensor
) -> Iterator[_Piece]:
    """Compute the coupling of one piece of the children after the other."""
    _, parents, in_dim, _ = weight.shape
    for some in split_children(len(weight), len(poses) * parents * in_dim, poses):
        logits = torch.einsum("bip,ijp->jbi", poses[:, some], route_weight[some]) + route_bias[some].T.unsqueeze(1)
        coupling, given = logits.softmax(dim=0), activations[:, some]
        matrices = weight[some].permute(1, 2, 0, 3).flatten(1, 2)
        turned = poses[:, some].transpose(1, 2).contiguous()
        yield _Piece(some, turned, given, matrices, coupling, coupling * given)
