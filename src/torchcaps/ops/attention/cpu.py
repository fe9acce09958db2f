"""The C++ twin of inverted dot-product attention: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops import _library
from torchcaps.ops._steps import check_iters
from torchcaps.ops.agreement.cpu import agree
from torchcaps.ops.attention.reference import check_attention, presence
from torchcaps.types import Capsules

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def route(
    poses: Tensor,
    weight: Tensor,
    parents: Tensor | None = None,
    *,
    gain: Tensor | None = None,
    offset: Tensor | None = None,
    iters: int = 3,
) -> Capsules:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]; see `attention_routing`.

    `parents` [B, J, D] are where the routing starts, zero unless given.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).poses.shape
    torch.Size([2, 10, 16])
    """
    check_iters(iters)
    size = weight.shape[-1]
    check_attention(parents, gain, offset, torch.Size((poses.shape[0], weight.shape[-3], size)))
    found, total = parents, poses
    for _ in range(iters):
        total = agree(poses, weight, None if found is None else found / math.sqrt(size))  # [B, J, D]
        found = F.layer_norm(total, (size,), gain, offset)  # [B, J, D]
    assert found is not None
    return Capsules(found, presence(total))
