"""The C++ kernel of self-attention routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.ops._attention_pass.cpu import attend, attend_to_sum
from torchcaps.ops._attention_pass.grid import Pairs, attend_grid, squash_parents
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.self_attention.reference import check_prior
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    prior: Tensor | None = None,
    squash: SquashForm = "exponential",
    softmax: ParentSoftmax | None = None,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `self_attention_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        prior: Logits that do not depend on the votes [I, J] or [1, J]; None for none.
        squash: Form of the squash function.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    poses, (parents, _, size) = children.poses, weight.shape[-3:]
    check_prior(prior, poses.shape[1], parents)
    own = None if prior is None or prior.shape[0] == 1 else prior
    if softmax is None:
        presquash, total = attend_to_sum(poses, weight, own)  # [B, J, D]
    else:
        total = parents * attend(poses, weight)  # [B, J, D], the sum of the votes
        presquash = attend(poses, weight, total / math.sqrt(size), own, softmax=softmax)  # [B, J, D]
    if prior is not None and own is None:
        presquash = presquash + prior.unsqueeze(-1) * total  # [B, J, D]
    out = apply_squash(presquash, form=squash)  # [B, J, D]
    return Capsules(out, torch.linalg.vector_norm(out, dim=-1))


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    prior: Tensor | None = None,
    squash: SquashForm = "exponential",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `self_attention_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        prior: Logits that do not depend on the votes; None for none.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    count, parents = window.places * children.poses.shape[-2], weight.shape[1]
    check_prior(prior, count, parents)
    # With competition inside of each position alone, the uniform coupling is 1/J for every child.
    total = parents * attend_grid(children, weight, replace(window, competition="local"))  # [B, H', W', J, D]
    key = total / math.sqrt(total.shape[-1])  # [B, H', W', J, D]
    pairs = None if prior is None else Pairs(prior=prior.expand(count, parents))
    return squash_parents(attend_grid(children, weight, window, key, pairs), None, squash)
