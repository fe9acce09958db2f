"""The Triton twin of dynamic routing, for CUDA."""

from __future__ import annotations

import torch
from torch import Tensor


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where this twin can serve, otherwise the reason and the remedy."""
    return "there is no Triton kernel in this version; use backend='auto'"


def describe() -> str:
    """What there is to say about the kernel where it is available."""
    return "triton"


def route(
    poses: Tensor, weight: Tensor, bias: Tensor | None = None, *, iters: int = 3, leaky: bool = False, grad: str = "all"
) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]."""
    raise NotImplementedError
