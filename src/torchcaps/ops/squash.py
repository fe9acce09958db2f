"""Squashing: map a vector to one of the same direction with a length in [0, 1)."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError

SquashForm = Literal["standard", "half", "exponential"]


def check_squash(form: str) -> None:
    """Raise ConfigError unless `form` is a squash form."""
    if form not in get_args(SquashForm):
        raise ConfigError(f"squash: expected one of {', '.join(get_args(SquashForm))}, got '{form}'")


def squash(presquash: Tensor, *, dim: int = -1, form: SquashForm = "standard") -> Tensor:
    """Shrink vectors to a length below 1 and keep their direction.

    With n = |s|, the forms are

    - `standard`: n^2 / (1 + n^2) s/n (Sabour et al. 2017, eq. 1);
    - `half`: n^2 / (0.5 + n^2) s/n, which doubles the length of short vectors (Su Jianlin 2018);
    - `exponential`: (1 - exp(-n)) s/n (Efficient-CapsNet, Mazzia et al. 2021, eq. 2).

    No form divides by the length: zero vectors stay zero and have finite gradients.

    Args:
        presquash: Vectors of any length.
        dim: Axis of the vectors.
        form: The function of the length.

    Shape:
        presquash: any; returns the same shape.

    Returns:
        The squashed vectors.

    Raises:
        ConfigError: If `form` is unknown.

    Example:
        >>> squash(torch.tensor([3.0, 4.0])).norm()
        tensor(0.9615)
    """
    length = torch.linalg.vector_norm(presquash, dim=dim, keepdim=True)
    if form == "standard":
        return presquash * (length / (1 + length * length))
    if form == "half":
        return presquash * (length / (0.5 + length * length))
    check_squash(form)
    # (1 - exp(-n)) / n tends to 1 at n = 0; the inner where keeps the gradient of the unused branch finite.
    safe = torch.where(length == 0, 1, length)
    return presquash * torch.where(length == 0, 1, -torch.expm1(-safe) / safe)


def squashed_length(presquash: Tensor, *, form: SquashForm = "standard") -> Tensor:
    """Compute the length of the squashed vectors without the vectors: |squash(s)| over the last axis.

    Args:
        presquash: Vectors of any length.
        form: The function of the length; see `squash`.

    Shape:
        presquash: [..., D]; returns [...].

    Returns:
        Lengths in [0, 1].

    Raises:
        ConfigError: If `form` is unknown.

    Example:
        >>> squashed_length(torch.tensor([3.0, 4.0]))
        tensor(0.9615)
    """
    if form == "exponential":
        return -torch.expm1(-torch.linalg.vector_norm(presquash, dim=-1))
    check_squash(form)
    square = presquash.square().sum(dim=-1)
    return square / ((1 if form == "standard" else 0.5) + square)
