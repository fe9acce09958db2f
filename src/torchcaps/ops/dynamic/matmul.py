"""Dynamic routing in plain torch, in the layout that its matrix products like best: for where there is no kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops._steps import parent_softmax
from torchcaps.ops.dynamic.reference import GradMode
from torchcaps.ops.squash import squash


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where this twin can serve, otherwise the reason and the remedy."""
    if device.type == "meta" or not dtype.is_floating_point:
        return f"it takes floating-point tensors on a device, got {dtype} on {device.type}; use backend='reference'"
    return None


def describe() -> str:
    """What there is to say about it."""
    return "plain torch"


def route(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D].

    The votes lie as [B, J, I, D]: agreement and weighted sum are then batched products of a matrix and a vector.
    """
    if weight.dim() == 4:
        votes = torch.einsum("bip,ijpd->ibjd", poses, weight).permute(1, 2, 0, 3).contiguous()  # [B, J, I, D]
    else:
        votes = poses.unsqueeze(1) @ weight  # [B, J, I, D]
    seen = votes.detach() if grad == "last" else votes  # [B, J, I, D]
    logits = votes.new_zeros(votes.shape[:3])  # [B, J, I]
    for iteration in range(iters):
        last = iteration == iters - 1
        seen = votes if last else seen
        coupling = parent_softmax(logits.transpose(1, 2), leaky=leaky).transpose(1, 2)  # [B, J, I]
        presquash = (coupling.unsqueeze(2) @ seen).squeeze(2)  # [B, J, D]
        if bias is not None:
            presquash = presquash + (bias.detach() if grad == "last" and not last else bias)  # [B, J, D]
        parents = squash(presquash)  # [B, J, D]
        if not last:
            logits = logits + (seen @ parents.unsqueeze(3)).squeeze(3)  # [B, J, I]
    return parents  # pyright: ignore[reportPossiblyUnboundVariable]
