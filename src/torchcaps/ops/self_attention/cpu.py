"""The C++ twin of self-attention routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.ops import _library
from torchcaps.ops.agreement.cpu import agree
from torchcaps.ops.self_attention.reference import check_prior
from torchcaps.ops.squash import squash
from torchcaps.types import Capsules

why_missing, why_not, describe = _library.why_missing, _library.why_not, _library.describe


def route(poses: Tensor, weight: Tensor, *, prior: Tensor | None = None) -> Capsules:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D].

    For `prior` see `self_attention_routing`.

    >>> route(torch.ones(2, 5, 8), torch.ones(5, 10, 8, 16)).poses.shape
    torch.Size([2, 10, 16])
    """
    parents, _, size = weight.shape[-3:]
    check_prior(prior, poses.shape[1], parents)
    spoken = parents * agree(poses, weight)  # [B, J, D], the sum of the votes
    key = spoken / math.sqrt(size)  # [B, J, D]
    if prior is None:
        heard = agree(poses, weight, key)  # [B, J, D]
    elif prior.shape[0] == 1:
        heard = agree(poses, weight, key) + prior.unsqueeze(-1) * spoken  # [B, J, D]
    else:
        heard = agree(poses, weight, key, prior)  # [B, J, D]
    pose = squash(heard, form="exponential")  # [B, J, D]
    return Capsules(pose, torch.linalg.vector_norm(pose, dim=-1))
