"""The C++ kernel of inverted dot-product attention: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._attention_pass.cpu import attend
from torchcaps.ops._attention_pass.grid import attend_grid
from torchcaps.ops._iterations import ParentSoftmax, check_iters
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.attention.reference import check_attention
from torchcaps.ops.conv import Window
from torchcaps.ops.squash import SquashForm, squashed_length
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    parents: Tensor | None = None,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax | None = None,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `attention_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        parents: Poses that the parents start with; None for the mean of the votes.
        gain: Gain of the layer normalisation [D]; None for none.
        offset: Offset of the layer normalisation [D]; None for none.
        iters: Number of iterations.
        squash: Form of the squash function.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    check_iters(iters)
    poses, size = children.poses, weight.shape[-1]
    check_attention(parents, gain, offset, torch.Size((poses.shape[0], weight.shape[-3], size)))
    out, total = parents, poses
    for _ in range(iters):
        key = None if out is None else out / math.sqrt(size)  # [B, J, D]
        total = attend(poses, weight, key, softmax=softmax)  # [B, J, D]
        out = F.layer_norm(total, (size,), gain, offset)  # [B, J, D]
    assert out is not None
    return Capsules(out, squashed_length(total, form=squash))


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    parents: Tensor | None = None,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window, parents [B*H'*W', J, D]; see `attention_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        parents: Poses that the parents start with; None for the mean of the votes.
        gain: Gain of the layer normalisation [D]; None for none.
        offset: Offset of the layer normalisation [D]; None for none.
        iters: Number of iterations.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    check_iters(iters)
    out = None if parents is None else parents.unflatten(0, (-1, *window.positions))  # [B, H', W', J, D]
    total = children.poses
    for _ in range(iters):
        key = None if out is None else out / math.sqrt(out.shape[-1])  # [B, H', W', J, D]
        total = attend_grid(children, weight, window, key)  # [B, H', W', J, D]
        check_attention(None, gain, offset, total.shape[2:])
        out = F.layer_norm(total, total.shape[-1:], gain, offset)  # [B, H', W', J, D]
    assert out is not None
    return Capsules(out, squashed_length(total, form=squash))
