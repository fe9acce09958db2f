"""The C++ kernel of uniform routing: one sum of votes, none of which is stored, and no copy of the weight."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops._attention_pass.cpu import attend
from torchcaps.ops._attention_pass.grid import attend_grid, squash_parents
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.uniform import recompute
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax | None = None,
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
    if weight.dim() == 3:
        # Poses can be added up before they vote: a small product, and nothing left for a kernel to gain.
        given = {} if softmax is None else {"softmax": softmax}
        return recompute.dense(children, weight, bias=bias, squash=squash, **given)
    check_parent_bias(bias, weight)
    check_squash(squash)
    presquash = attend(children.poses, weight, softmax=softmax)  # [B, J, D]
    out = apply_squash(presquash if bias is None else presquash + bias, form=squash)  # [B, J, D]
    return Capsules(out, torch.linalg.vector_norm(out, dim=-1))


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    bias: Tensor | None = None,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `uniform_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        bias: Bias of the parents [J, D]; None for none.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    return squash_parents(attend_grid(children, weight, window), bias, squash)
