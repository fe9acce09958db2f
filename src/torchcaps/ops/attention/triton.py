"""The Triton kernel of inverted dot-product attention: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops._iterations import check_iters
from torchcaps.ops._triton.attend import attend
from torchcaps.ops._triton.layer import Layer
from torchcaps.ops.attention.reference import check_attention
from torchcaps.ops.squash import SquashForm, squashed_length
from torchcaps.types import Capsules


def route(
    layer: Layer,
    *,
    parents: Tensor | None = None,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a dense or convolutional layer; see `attention_routing`.

    Args:
        layer: Children and weight.
        parents: Poses that the first iteration attends to.
        gain: Gain of the layer normalisation.
        offset: Offset of the layer normalisation.
        iters: Number of routing iterations.
        squash: Form of the squash.

    Shape:
        parents: [B*positions, J, D]; gain and offset: [D]; returns poses [B, positions, J, D], activations
        [B, positions, J].

    Returns:
        The parents.
    """
    check_iters(iters)
    out = None if parents is None else parents.unflatten(0, (layer.poses.shape[0], -1))  # [B, positions, J, D]
    total = layer.poses
    for _ in range(iters):
        key = None if out is None else out / math.sqrt(out.shape[-1])  # [B, positions, J, D]
        total = attend(layer, key)  # [B, positions, J, D]
        count, size = total.shape[2:]
        check_attention(parents, gain, offset, torch.Size((len(total) * total.shape[1], count, size)))
        scale, shift = (None if given is None else given.to(total) for given in (gain, offset))  # [D], [D]
        out = F.layer_norm(total, (size,), scale, shift)  # [B, positions, J, D]
    assert out is not None
    return Capsules(out, squashed_length(total, form=squash))
