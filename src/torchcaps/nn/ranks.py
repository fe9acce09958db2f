"""What layers over signals, images and volumes share: the modules of torch by the number of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import ConfigError, ShapeError

Layer = Callable[..., Any]
CONVS: dict[int, Layer] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED_CONVS: dict[int, Layer] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
# Names of the axes of a grid, as shapes are written.
AXES = {1: "T", 2: "H, W", 3: "D, H, W"}


def per_axis(name: str, value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one number per axis: the same for all, or those that are given.

    Args:
        name: Name of the option, for the error.
        value: A number, or one per axis.
        rank: Number of axes.

    Returns:
        One number per axis.

    Raises:
        ConfigError: If there is another number of them.
    """
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank:
        raise ConfigError(f"{name}: expected a number, or one for each of {rank} axes, got {value}")
    return sizes


def check_features(features: Tensor, rank: int) -> None:
    """Raise ShapeError unless features have a batch, channels and one axis per rank."""
    if features.dim() != rank + 2:
        raise ShapeError(
            f"features: expected [B, C, {AXES[rank]}], got {tuple(features.shape)} ({features.dim()} axes)"
        )


def check_kernel_fits(features: Tensor, kernel: Sequence[int]) -> None:
    """Raise ShapeError unless features are at least as large as a kernel along every axis."""
    sides = tuple(features.shape[2:])
    if any(side < size for side, size in zip(sides, kernel, strict=True)):
        raise ShapeError(f"features: expected sides of at least the kernel {tuple(kernel)}, got {sides}")
