"""The C++ twin of dynamic routing."""

from __future__ import annotations

import torch
from torch import Tensor


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where the kernel can serve, otherwise the reason and the remedy."""
    return "the CPU kernel is not built"


def describe() -> str:
    """The instruction set that the kernel uses."""
    return "avx512"


def route(
    poses: Tensor, weight: Tensor, bias: Tensor | None = None, *, iters: int = 3, leaky: bool = False, grad: str = "all"
) -> Tensor:
    """From poses [B, I, P] through weight [I, J, P, D], or [J, P, D], to parents [B, J, D]."""
    raise NotImplementedError
