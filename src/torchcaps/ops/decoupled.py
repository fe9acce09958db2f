"""Decoupled convolution: a function of the norms times a function of the angle (Liu and others 2018)."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError

Magnitude = Literal["linear", "sphere", "ball", "tanh"]
Angle = Literal["cosine", "linear", "square_cosine"]


def check_decoupled(magnitude: str, angle: str, radius: float) -> None:
    """Raise ConfigError unless both names are known and the radius is above 0.

    Args:
        magnitude: Form of the magnitude.
        angle: Form of the angle.
        radius: Radius of the magnitude.
    """
    for name, value, known in (("magnitude", magnitude, get_args(Magnitude)), ("angle", angle, get_args(Angle))):
        if value not in known:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, got '{value}'")
    if not 0 < radius < math.inf:
        raise ConfigError(f"radius: expected a finite number above 0, got {radius}")


def of_norm(norm: Tensor, magnitude: Magnitude, radius: float) -> Tensor:
    """Compute h of the norm of a patch: `linear` |x|, `sphere` 1, `ball` min(|x|, r) / r, `tanh` tanh(|x| / r).

    Args:
        norm: Norms.
        magnitude: Form of the magnitude.
        radius: Radius of the magnitude.

    Returns:
        Magnitudes.
    """
    if magnitude == "sphere":
        return torch.ones_like(norm)
    if magnitude == "ball":
        return norm.clamp(max=radius) / radius
    return norm if magnitude == "linear" else torch.tanh(norm / radius)


def of_cosine(cosine: Tensor, angle: Angle) -> Tensor:
    """Compute g of the angle t between patch and kernel: `cosine` cos t, `linear` 1 - 2 t / pi, `square_cosine`."""
    if angle == "linear":
        # The derivative of the arc cosine is infinite at the ends.
        return 1 - 2 * torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6)) / math.pi
    return cosine if angle == "cosine" else cosine * cosine.abs()


def decoupled_conv2d(
    maps: Tensor,
    weight: Tensor,
    *,
    magnitude: Magnitude = "tanh",
    angle: Angle = "cosine",
    radius: float = 1.0,
    stride: int = 1,
    padding: int = 0,
) -> Tensor:
    """Compute h(|x|) g(angle(x, w)) for every patch x and kernel w: the reference of `nn.DecoupledConv2d`.

    An inner product is |w| |x| cos(angle): the norm of the patch is how much of a feature there is, the angle which one
    it is. Both get functions of their own, h and g (Liu et al. 2018, eq. 2, without the norm of w).

    Args:
        maps: Feature maps.
        weight: Kernels; only their direction counts.
        magnitude: h; see `of_norm`.
        angle: g; see `of_cosine`.
        radius: Norm at which h saturates.
        stride: Stride of the convolution.
        padding: Zeros around the maps.

    Shape:
        maps: [B, C, H, W]; weight: [C', C, K, K]; returns [B, C', H', W'].

    Returns:
        The maps.

    Raises:
        ConfigError: If a name is unknown or the radius is not above 0.

    Example:
        >>> decoupled_conv2d(torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)).shape
        torch.Size([2, 4, 3, 3])
    """
    check_decoupled(magnitude, angle, radius)
    size = weight.shape[2:]
    patches = F.unfold(maps, size, padding=padding, stride=stride).transpose(1, 2)  # [B, H'*W', C*K*K]
    kernels = weight.flatten(1)  # [C', C*K*K]
    norm = patches.norm(dim=-1, keepdim=True)  # [B, H'*W', 1]
    cosine = F.cosine_similarity(patches.unsqueeze(2), kernels, dim=-1)  # [B, H'*W', C']
    out = of_norm(norm, magnitude, radius) * of_cosine(cosine, angle)  # [B, H'*W', C']
    height = (maps.shape[2] + 2 * padding - size[0]) // stride + 1
    return out.transpose(1, 2).unflatten(2, (height, -1))
