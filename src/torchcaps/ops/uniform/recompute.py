"""Uniform routing as one matrix product, without votes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops._iterations import ParentSoftmax, parent_softmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._sum_votes import sum_fixed
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `uniform_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        squash: Form of the squash function.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    check_poses_and_weight(children.poses, weight)
    check_parent_bias(bias, weight)
    check_squash(squash)
    poses = children.poses
    total = sum_fixed(poses, weight) if weight.dim() == 4 else torch.einsum("bip,jpd->bjd", poses, weight)  # [B, J, D]
    # Equal for all children and samples.
    share = softmax(weight.new_zeros(1, 1, weight.shape[-3])).mT  # [1, J, 1]
    presquash = total * share  # [B, J, D]
    out = apply_squash(presquash if bias is None else presquash + bias, form=squash)  # [B, J, D]
    return Capsules(out, torch.linalg.vector_norm(out, dim=-1))
