"""Squashing: keep a vector's direction and press its length into [0, 1)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError

SquashForm = Literal["standard", "half", "exponential"]


def squash(presquash: Tensor, *, dim: int = -1, form: SquashForm = "standard") -> Tensor:
    """Shrink vectors to a length below one without turning them.

    With n = |s|: `standard` is n^2/(1+n^2) * s/n (Sabour et al. 2017, eq. 1); `half` has 0.5 in place of 1, so that
    short vectors come out twice as long (Su Jianlin's essay on capsules); `exponential` is (1 - exp(-n)) * s/n
    (Efficient-CapsNet, Mazzia et al. 2021, eq. 2). No form divides by the length, so that zero vectors stay zero
    and have finite gradients.

    >>> squash(torch.tensor([3.0, 4.0])).norm()
    tensor(0.9615)
    """
    length = torch.linalg.vector_norm(presquash, dim=dim, keepdim=True)
    if form == "standard":
        return presquash * (length / (1 + length * length))
    if form == "half":
        return presquash * (length / (0.5 + length * length))
    if form == "exponential":
        # (1 - exp(-n)) / n tends to 1 at n = 0; the inner where keeps the gradient of the unused branch finite.
        safe = torch.where(length == 0, 1, length)
        return presquash * torch.where(length == 0, 1, -torch.expm1(-safe) / safe)
    raise ConfigError(f"form: expected one of {', '.join(get_args(SquashForm))}, got '{form}'")
