"""Votes: the prediction of every child for the pose of every parent."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.types import Capsules


def check_votes(votes: Tensor) -> None:
    """Raise ShapeError unless votes are [B, I, J, D]."""
    if votes.dim() != 4:
        raise ShapeError(f"votes: expected [B, I, J, D], got {tuple(votes.shape)} ({votes.dim()} axes)")


def check_activations(activations: Tensor, votes: Tensor) -> None:
    """Raise ShapeError unless activations are [B, I], one for each child of votes [B, I, J, D]."""
    if activations.shape != votes.shape[:2]:
        raise ShapeError(f"activations: expected {tuple(votes.shape[:2])}, got {tuple(activations.shape)}")


def check_bias(bias: Tensor | None, votes: Tensor) -> None:
    """Raise ShapeError unless there is no bias, or it is [J, D] for votes [B, I, J, D]."""
    if bias is not None and bias.shape != votes.shape[2:]:
        raise ShapeError(f"bias: expected {tuple(votes.shape[2:])}, got {tuple(bias.shape)}")


def check_parent_bias(bias: Tensor | None, weight: Tensor) -> None:
    """Raise ShapeError unless there is no bias, or it is [J, D] for a weight [..., J, P, D]."""
    if bias is not None and bias.shape != (weight.shape[-3], weight.shape[-1]):
        raise ShapeError(f"bias: expected {(weight.shape[-3], weight.shape[-1])}, got {tuple(bias.shape)}")


def check_poses_and_weight(poses: Tensor, weight: Tensor) -> None:
    """Raise ShapeError unless poses [B, I, P] and weight [I, J, P, D], or a shared weight [J, P, D], fit."""
    if poses.dim() != 3:
        raise ShapeError(f"poses: expected [B, I, P], got {tuple(poses.shape)} ({poses.dim()} axes)")
    if weight.dim() not in (3, 4):
        raise ShapeError(
            f"weight: expected [I, J, P, D], or [J, P, D] shared by all children, got {tuple(weight.shape)} "
            f"({weight.dim()} axes)"
        )
    children, size = poses.shape[1:]
    if weight.dim() == 4 and weight.shape[0] != children:
        raise ShapeError(f"poses: expected {weight.shape[0]} children, got {tuple(poses.shape)} ({children} children)")
    if weight.shape[-2] != size:
        raise ShapeError(f"poses: expected pose size {weight.shape[-2]}, got {tuple(poses.shape)} (pose size {size})")


def check_layer(children: Capsules, weight: Tensor) -> None:
    """Raise unless children [B, I, P] and weight [I, J, P, D] or [J, P, D] fit, with one device and real numbers."""
    check_poses_and_weight(children.poses, weight)
    # Activations that are only looked at would become an input of a compiled graph.
    if not torch.compiler.is_compiling():
        check_activations(children.activations, children.poses)
        check_kinds(children, weight)


def check_kinds(children: Capsules, weight: Tensor) -> None:
    """Raise ConfigError unless children and weight are dense, with floating-point types and one device."""
    for name, tensor in (("poses", children.poses), ("activations", children.activations), ("weight", weight)):
        if not tensor.dtype.is_floating_point or tensor.dtype.itemsize < 2:
            raise ConfigError(f"{name}: expected a floating-point type of 16 to 64 bits, got {tensor.dtype}")
        if tensor.layout != torch.strided:
            raise ConfigError(f"{name}: expected a dense tensor, got {tensor.layout}")
        if tensor.device != children.poses.device:
            device = children.poses.device
            raise ConfigError(f"{name}: expected a tensor on {device} like poses, got {tensor.device}")


def vote(poses: Tensor, weight: Tensor) -> Tensor:
    """Compute the votes of vector capsules, votes_ij = poses_i weight_ij (Sabour et al. 2017, eq. 2).

    Args:
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; returns [B, I, J, D].

    Returns:
        The votes.

    Raises:
        ShapeError: If poses and weight do not fit.

    Example:
        >>> vote(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).shape
        torch.Size([2, 5, 10, 16])
    """
    check_poses_and_weight(poses, weight)
    if torch.compiler.is_exporting():
        parents = weight.shape[-3]
        matrices = weight.transpose(-3, -2).flatten(-2)  # [I, P, J*D] or [P, J*D]
        if weight.dim() == 3:
            return (poses @ matrices).unflatten(2, (parents, -1))  # [B, I, J, D]
        return (poses.transpose(0, 1) @ matrices).unflatten(2, (parents, -1)).transpose(0, 1)  # [B, I, J, D]
    if weight.dim() == 3:
        return torch.einsum("bip,jpd->bijd", poses, weight)  # [B, I, J, D]
    return torch.einsum("bip,ijpd->bijd", poses, weight)  # [B, I, J, D]


def matrix_vote(poses: Tensor, weight: Tensor) -> Tensor:
    """Compute the votes of matrix capsules, votes_ij = poses_i weight_ij (Hinton et al. 2018, section 2).

    Poses are p x p matrices stored row by row, P = p*p.

    Args:
        poses: Poses of the children.
        weight: One matrix per child and parent. With fewer matrices than children, I/n, they are used n times: the
            same types at n places of a grid.

    Shape:
        poses: [B, I, P]; weight: [I, J, p, p] or [I/n, J, p, p]; returns [B, I, J, P].

    Returns:
        The votes.

    Raises:
        ShapeError: If poses and weight do not fit.

    Example:
        >>> matrix_vote(torch.ones(2, 18, 16), torch.ones(9, 5, 4, 4)).shape
        torch.Size([2, 18, 5, 16])
    """
    if poses.dim() != 3:
        raise ShapeError(f"poses: expected [B, I, P], got {tuple(poses.shape)} ({poses.dim()} axes)")
    if weight.dim() != 4 or weight.shape[2] != weight.shape[3]:
        raise ShapeError(f"weight: expected [I, J, p, p], got {tuple(weight.shape)}")
    types, _, side, _ = weight.shape
    if poses.shape[2] != side * side:
        raise ShapeError(f"poses: expected pose size {side * side}, got {tuple(poses.shape)}")
    if poses.shape[1] % types:
        raise ShapeError(f"poses: expected a multiple of {types} children, got {tuple(poses.shape)}")
    if torch.compiler.is_exporting():
        return _matrix_vote_products(poses, weight)
    matrices = poses.unflatten(1, (-1, types)).unflatten(-1, (side, side))  # [B, n, I/n, p, p]
    return torch.einsum("bnirp,ijpq->bnijrq", matrices, weight).flatten(-2).flatten(1, 2)  # [B, I, J, P]


def _matrix_vote_products(poses: Tensor, weight: Tensor) -> Tensor:
    """Compute `matrix_vote` as one product per child type: the numbers of a vote are then adjacent in memory."""
    rows = poses.unflatten(1, (-1, weight.shape[0]))  # [B, n, I/n, P]
    votes = rows.flatten(0, 1).transpose(0, 1) @ block_matrices(weight)  # [I/n, B*n, J*P]
    votes = votes.unflatten(2, (weight.shape[1], -1)).transpose(0, 1)  # [B*n, I/n, J, P]
    return votes.unflatten(0, (-1, rows.shape[1])).flatten(1, 2)  # [B, I, J, P]


def block_matrices(weight: Tensor) -> Tensor:
    """Return the matrices that multiply a pose matrix as a row of P = p*p numbers.

    A product of p x p matrices is one of a row with a block-diagonal matrix, p copies of the weight.

    Args:
        weight: One p x p matrix per child and parent.

    Shape:
        weight: [I, J, p, p]; returns [I, P, J*P].

    Returns:
        One matrix per child.

    Example:
        >>> block_matrices(torch.ones(9, 5, 4, 4)).shape
        torch.Size([9, 16, 80])
    """
    side = weight.shape[2]
    same = torch.eye(side).to(weight).view(side, 1, 1, side, 1)  # [p, 1, 1, p, 1]
    blocks = weight.transpose(1, 2)[:, None, :, :, None] * same  # [I, p, p, J, p, p]
    return blocks.reshape(weight.shape[0], side * side, -1)  # [I, P, J*P]


def sum_votes(coupling: Tensor, votes: Tensor) -> Tensor:
    """Compute sum_i coupling_ij votes_ij, the weighted sum of the votes for each parent.

    Args:
        coupling: Weight of each vote.
        votes: Predictions of every child for every parent.

    Shape:
        coupling: [B, I, J]; votes: [B, I, J, D]; returns [B, J, D].

    Returns:
        The sums.

    Example:
        >>> sum_votes(torch.ones(2, 5, 3), torch.ones(2, 5, 3, 8)).shape
        torch.Size([2, 3, 8])
    """
    if torch.compiler.is_exporting():
        # ONNX Runtime multiplies matrices many times faster than it evaluates an Einsum.
        return (coupling.transpose(1, 2).unsqueeze(2) @ votes.transpose(1, 2)).squeeze(2)  # [B, J, D]
    return torch.einsum("bij,bijd->bjd", coupling, votes)  # [B, J, D]


def dot_votes(votes: Tensor, poses: Tensor) -> Tensor:
    """Compute votes_ij . poses_j, the agreement of each vote with its parent.

    Args:
        votes: Predictions of every child for every parent.
        poses: Poses of the parents.

    Shape:
        votes: [B, I, J, D]; poses: [B, J, D]; returns [B, I, J].

    Returns:
        The dot products.

    Example:
        >>> dot_votes(torch.ones(2, 5, 3, 8), torch.ones(2, 3, 8)).shape
        torch.Size([2, 5, 3])
    """
    if torch.compiler.is_exporting():
        return (votes.transpose(1, 2) @ poses.unsqueeze(3)).squeeze(3).transpose(1, 2)  # [B, I, J]
    return torch.einsum("bijd,bjd->bij", votes, poses)  # [B, I, J]
