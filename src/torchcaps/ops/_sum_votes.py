"""Sums of the votes with a coupling that is the same for all samples: matrix products over pieces of the children."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops._backends import transform_reason
from torchcaps.ops._pieces import split_children, without_autocast


def sum_fixed(poses: Tensor, weight: Tensor, coupling: Tensor | None = None) -> Tensor:
    """Compute sum_i coupling_ij poses_i weight_ij, without votes and without a copy of the weight.

    Args:
        poses: Poses of the children.
        weight: One matrix per child and parent.
        coupling: Weight of the votes, which has no gradient; None for 1.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D]; coupling: [I, J]; returns [B, J, D].

    Returns:
        The sums.

    Example:
        >>> sum_fixed(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).shape
        torch.Size([2, 10, 16])
    """
    if transform_reason() is None:
        return _SumFixed.apply(poses, weight, coupling)  # [B, J, D]
    if coupling is not None:
        weight = weight * coupling[..., None, None]  # [I, J, P, D]
    return torch.einsum("bip,ijpd->bjd", poses, weight)  # [B, J, D]


def sum_pieces(poses: Tensor, weight: Tensor, coupling: Tensor | None = None) -> Tensor:
    """Compute `sum_fixed` piece by piece, with the derivatives that torch records."""
    _, parents, _, out_dim = weight.shape
    out = poses.new_zeros(len(poses), parents * out_dim)  # [B, J*D]
    for some in _pieces(poses, weight):
        # Not in place: `FlopCounterMode` counts this form.
        out = torch.addmm(out, poses[:, some].flatten(1), _matrices(weight, coupling, some))
    return out.unflatten(1, (parents, out_dim))


def _pieces(poses: Tensor, weight: Tensor) -> Iterator[slice]:
    """Split the children by the size of their poses and matrices."""
    _, parents, in_dim, out_dim = weight.shape
    return split_children(len(weight), in_dim * (len(poses) + parents * out_dim), weight)


class _SumFixed(torch.autograd.Function):
    """Products of poses [B, i*P] with matrices [i*P, J*D], for a piece of the children at a time.

    Each gradient is computed where it stays. The backward pass consists of differentiable operations.
    """

    @staticmethod
    def forward(poses: Tensor, weight: Tensor, coupling: Tensor | None) -> Tensor:
        with without_autocast(poses.device):
            return sum_pieces(poses, weight, coupling)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        poses, weight, coupling = ctx.saved_tensors
        needs_poses, needs_weight, _ = ctx.needs_input_grad
        of_poses = torch.empty_like(poses) if needs_poses else None
        of_weight = torch.empty_like(weight) if needs_weight else None
        grad = grad.flatten(1)  # [B, J*D]
        for some in _pieces(poses, weight):
            if of_poses is not None:
                of_poses[:, some] = (grad @ _matrices(weight, coupling, some).mT).unflatten(1, (-1, poses.shape[2]))
            if of_weight is not None:
                _, parents, in_dim, out_dim = weight.shape
                found = poses[:, some].flatten(1).mT @ grad  # [i*P, J*D]
                found = found.view(-1, in_dim, parents, out_dim).transpose(1, 2)  # [i, J, P, D]
                of_weight[some] = found if coupling is None else found * coupling[some, :, None, None]
        return of_poses, of_weight, None


def _matrices(weight: Tensor, coupling: Tensor | None, some: slice) -> Tensor:
    """Return the matrices of some children as one, [i*P, J*D]."""
    part = weight[some] if coupling is None else weight[some] * coupling[some, :, None, None]
    return part.transpose(1, 2).reshape(-1, part.shape[1] * part.shape[3])
