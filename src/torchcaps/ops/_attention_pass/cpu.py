"""One pass of softmax attention over the votes in C++, differentiable, without stored votes (see README.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.steps import attend_by
from torchcaps.ops._flops import Cost, dense_votes
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._pieces import split_children
from torchcaps.ops.votes import check_poses_and_weight


def attend(
    poses: Tensor,
    weight: Tensor,
    key: Tensor | None = None,
    prior: Tensor | None = None,
    *,
    softmax: ParentSoftmax | None = None,
) -> Tensor:
    """Sum the votes for each parent, total_j = sum_i (coupling_ij + prior_ij) votes_ij, votes_ij = poses_i weight_ij.

    coupling is the softmax over the parents of votes . key, and uniform without a key. All four tensors have first
    derivatives; the gradient of a gradient is an error.

    Args:
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.
        key: One vector per parent, which the votes are compared with.
        prior: Added to the coupling; needs a key.
        softmax: Softmax over the parents, where they are more than those of the weight; see `attend_by`.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; key: [B, J, D]; prior: [I, J]; returns [B, J, D].

    Returns:
        The sums, in the type that poses and weight promote to. Types of 16 bits are computed in float32.

    Raises:
        ShapeError: If the shapes do not belong together.

    Example:
        >>> attend(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16), torch.zeros(2, 10, 16)).shape
        torch.Size([2, 10, 16])
    """
    result = torch.promote_types(poses.dtype, weight.dtype)
    if softmax is not None:
        return attend_by(softmax, poses, weight, key, prior).to(result)  # [B, J, D]
    dtype = _native.compute_dtype(result)
    key, prior = (None if tensor is None else tensor.to(dtype) for tensor in (key, prior))
    return _agree(poses.to(dtype), weight.to(dtype), key, prior).to(result)  # [B, J, D]


def attend_to_sum(poses: Tensor, weight: Tensor, prior: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum the votes, and once more by `attend` with their sum, divided by sqrt(D), as the key.

    Args:
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.
        prior: Added to the coupling.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; prior: [I, J]; returns two tensors [B, J, D].

    Returns:
        The weighted sums, and the sums of the votes. Both have first derivatives, which are added up in one place.

    Example:
        >>> attend_to_sum(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16))[1].shape
        torch.Size([2, 10, 16])
    """
    result = torch.promote_types(poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    given = None if prior is None else prior.to(dtype)
    weighted, total = _self_agree(poses.to(dtype), weight.to(dtype), given)
    return weighted.to(result), total.to(result)


def _check(poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None) -> None:
    check_poses_and_weight(poses, weight)
    _native.check_shape("key", key, _shapes(poses, weight)[0])
    _native.check_shape("prior", prior, [poses.shape[1], weight.shape[-3]])
    if prior is not None and key is None:
        raise ShapeError(f"prior: expected a key with it, got a prior {tuple(prior.shape)} alone")


def _shapes(poses: Tensor, weight: Tensor, *_: Tensor | None) -> list[list[int]]:
    return [[poses.shape[0], weight.shape[-3], weight.shape[-1]]]  # [B, J, D]


def _cost(poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None) -> Cost:
    # One pass for the gradient of the key, one for the coupling; a uniform coupling does not depend on the votes.
    return Cost(dense_votes(poses, weight), 1, 0 if key is None else 2)


def _sizes(args: _native.Arguments) -> list[int]:
    poses, weight = args[:2]
    return [*poses.shape[:2], *weight.shape[-3:], int(weight.dim() == 3)]


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _native.call("attention_pass_forward", [*args, *outputs], _sizes(args))


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _native.call("attention_pass_backward", [*args, *grads, *outputs], _sizes(args))


_agree = _native.native_op(
    "agree",
    "(Tensor poses, Tensor weight, Tensor? key, Tensor? prior) -> Tensor",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
)


def _check_self(poses: Tensor, weight: Tensor, prior: Tensor | None) -> None:
    check_poses_and_weight(poses, weight)
    _native.check_shape("prior", prior, [poses.shape[1], weight.shape[-3]])


def _forward_self(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    poses, weight, prior = args
    weighted, total = outputs
    _forward([poses, weight, None, None], [total])
    # The kernel gives each parent an equal share.
    total *= weight.shape[-3]
    _forward([poses, weight, total / math.sqrt(weight.shape[-1]), prior], [weighted])


def _backward_self(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    poses, weight, prior = args
    of_weighted, of_total = grads
    of_poses, of_weight, of_prior = outputs
    parents, _, size = weight.shape[-3:]
    of_key = torch.empty_like(of_total)
    key = saved[0] / math.sqrt(size)
    _backward([poses, weight, key, prior], [], [of_weighted], [of_poses, of_weight, of_key, of_prior])
    of_share = parents * (of_total + of_key / math.sqrt(size))
    shared = weight.dim() == 3
    # The gradients of the sum, piece by piece: no second gradient of full size. A shared weight is small.
    pieces = split_children(poses.shape[1], parents * weight.shape[-2] * size, weight, tensors=1)
    for some in [slice(None)] if shared else pieces:
        part = poses[:, some].contiguous(), weight if shared else weight[some]
        by_poses, by_weight = (
            None if of is None else torch.empty_like(own) for of, own in zip(outputs, part, strict=False)
        )
        _backward([*part, None, None], [], [of_share], [by_poses, by_weight, None, None])
        if of_poses is not None and by_poses is not None:
            of_poses[:, some] += by_poses
        if of_weight is not None and by_weight is not None:
            (of_weight if shared else of_weight[some]).add_(by_weight)


_self_agree = _native.native_op(
    "self_agree",
    "(Tensor poses, Tensor weight, Tensor? prior) -> (Tensor, Tensor)",
    check=_check_self,
    shapes=lambda poses, weight, prior: 2 * _shapes(poses, weight),
    forward=_forward_self,
    backward=_backward_self,
    # Backward one pass for the key and one for the coupling, and the gradients of both sums.
    cost=lambda poses, weight, prior: Cost(dense_votes(poses, weight), 2, 2),
    saved=(1,),
)
