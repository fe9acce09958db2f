"""The attention pass in two steps, with a softmax of the caller's between them (see README.md).

A layer whose parents are divided over processes has only some of the logits of a child: the softmax needs those of all.
The C++ functions are those of self-routing: a sum of votes with given shares, and its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.ops import _native
from torchcaps.ops._flops import Cost, dense_votes
from torchcaps.ops._iterations import Background, ParentSoftmax
from torchcaps.ops.votes import check_poses_and_weight


def attend_by(
    softmax: ParentSoftmax,
    poses: Tensor,
    weight: Tensor,
    key: Tensor | None = None,
    prior: Tensor | None = None,
    *,
    background: Background = None,
    through: bool = True,
) -> Tensor:
    """Sum the votes for each parent as `attend` does, with a given softmax.

    Args:
        softmax: Softmax over the parents. Of equal logits it gives the same shares for all children.
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.
        key: One vector per parent, which the votes are compared with. Without it all logits are equal.
        prior: Added to the coupling; needs a key.
        background: Logit of belonging to no parent.
        through: Whether the coupling has a gradient.

    Shape:
        poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; key: [B, J, D]; prior: [I, J]; returns [B, J, D].

    Returns:
        The sums.
    """
    if key is None:
        share = softmax(poses.new_zeros(1, 1, weight.shape[-3]), background=background)  # [1, 1, J]
        pattern = "bip,ijpd->bjd" if weight.dim() == 4 else "bip,jpd->bjd"
        return share.mT * torch.einsum(pattern, poses, weight)  # [B, J, D]
    logits = agreement(key, poses, weight)  # [B, I, J]
    coupling = softmax(logits if through else logits.detach(), background=background)  # [B, I, J]
    return sum_votes(coupling if prior is None else coupling + prior, poses, weight)  # [B, J, D]


def agreement(key: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    """Compare every vote with the key of its parent: votes_ij . key_j, votes_ij = poses_i weight_ij.

    Args:
        key: One vector per parent.
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.

    Shape:
        key: [B, J, D]; poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; returns [B, I, J].

    Returns:
        The agreements, with the samples last in memory.

    Example:
        >>> agreement(torch.ones(2, 3, 4), torch.ones(2, 6, 8), torch.ones(6, 3, 8, 4)).shape
        torch.Size([2, 6, 3])
    """
    key, poses, weight = _wide(key, poses, weight)
    if weight.dim() == 3:
        pulled = torch.einsum("bjd,jpd->bjp", key, weight)  # [B, J, P]
        return torch.einsum("bip,bjp->ijb", poses, pulled).permute(2, 0, 1)  # [B, I, J]
    return _agreement(key, poses, weight).permute(2, 0, 1)  # [B, I, J]


def sum_votes(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    """Sum the votes for each parent, sum_i share_ij poses_i weight_ij.

    Args:
        share: Weight of each vote.
        poses: Poses of the children.
        weight: One matrix per child and parent, or one per parent that all children share.

    Shape:
        share: [B, I, J]; poses: [B, I, P]; weight: [I, J, P, D] or [J, P, D]; returns [B, J, D].

    Returns:
        The sums.

    Example:
        >>> sum_votes(torch.ones(2, 6, 3), torch.ones(2, 6, 8), torch.ones(6, 3, 8, 4)).shape
        torch.Size([2, 3, 4])
    """
    share, poses, weight = _wide(share, poses, weight)
    if weight.dim() == 3:
        return torch.einsum("bjp,jpd->bjd", torch.einsum("bij,bip->bjp", share, poses), weight)  # [B, J, D]
    return _sum_votes(share.permute(1, 2, 0), poses, weight)  # [B, J, D]


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in one type of 32 or 64 bits."""
    dtype = _native.compute_dtype(torch.promote_types(tensors[1].dtype, tensors[2].dtype))
    return [tensor.to(dtype) for tensor in tensors]


def _check_both(poses: Tensor, weight: Tensor) -> None:
    check_poses_and_weight(poses, weight)
    _native.check_shape("weight", weight, [poses.shape[1], *weight.shape[-3:]])


def _check_sum(share: Tensor, poses: Tensor, weight: Tensor) -> None:
    _check_both(poses, weight)
    _native.check_shape("share", share, _pairs(poses, weight))


def _check_agreement(key: Tensor, poses: Tensor, weight: Tensor) -> None:
    _check_both(poses, weight)
    _native.check_shape("key", key, _parents(poses, weight))


def _pairs(poses: Tensor, weight: Tensor) -> list[int]:
    return [poses.shape[1], weight.shape[-3], poses.shape[0]]  # [I, J, B]


def _parents(poses: Tensor, weight: Tensor) -> list[int]:
    return [poses.shape[0], weight.shape[-3], weight.shape[-1]]  # [B, J, D]


def _sum(share: Tensor, poses: Tensor, weight: Tensor, out: Tensor) -> None:
    _native.call("weighted_sum_forward", [share, poses, weight, out], [*poses.shape[:2], *weight.shape[1:]])


def _sum_backward(tensors: Sequence[Tensor | None], poses: Tensor, weight: Tensor) -> None:
    """Call with share [I, J, B], gradient or key [B, J, D], and the gradients of share, poses and weight, or None."""
    share, key, *grads = tensors
    sizes = [*poses.shape[:2], *weight.shape[1:]]
    _native.call("weighted_sum_backward", [share, poses, weight, key, *grads], sizes)


def _forward_sum(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    share, poses, weight = args
    _sum(share, poses, weight, outputs[0])


def _backward_sum(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    share, poses, weight = args
    _sum_backward([share, grads[0], *outputs], poses, weight)


def _forward_agreement(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    # The gradient of a sum of votes in its shares, which do not matter for it.
    key, poses, weight = args
    _sum_backward([outputs[0].zero_(), key, outputs[0], None, None], poses, weight)


def _backward_agreement(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    key, poses, weight = args
    if outputs[0] is not None:
        _sum(grads[0], poses, weight, outputs[0])
    if outputs[1] is not None or outputs[2] is not None:
        _sum_backward([grads[0], key, None, *outputs[1:]], poses, weight)


_sum_votes = _native.native_op(
    "sum_votes",
    "(Tensor share, Tensor poses, Tensor weight) -> Tensor",
    check=_check_sum,
    shapes=lambda share, poses, weight: [_parents(poses, weight)],
    forward=_forward_sum,
    backward=_backward_sum,
    cost=lambda share, poses, weight: Cost(dense_votes(poses, weight), 1, 0),
)
_agreement = _native.native_op(
    "agreement",
    "(Tensor key, Tensor poses, Tensor weight) -> Tensor",
    check=_check_agreement,
    shapes=lambda key, poses, weight: [_pairs(poses, weight)],
    forward=_forward_agreement,
    backward=_backward_agreement,
    cost=lambda key, poses, weight: Cost(dense_votes(poses, weight), 1, 1),
)
