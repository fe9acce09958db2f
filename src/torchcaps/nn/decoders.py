"""Decoders: from the poses of the class capsules to an image."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.nn.ranks import CONVS, TRANSPOSED_CONVS

DECODERS: Registry[type[nn.Module]] = Registry("decoder")


@DECODERS.register("mlp")
class MLPDecoder(nn.Module):
    """Decoder of the paper: linear layers J*D -> 512 -> 1024 -> pixels, ReLU, sigmoid (Sabour et al. 2017, figure 2).

    Args:
        num_classes: Number of class capsules J.
        dim: Pose size D.
        image_shape: Channels, height and width of the images; a signal has (channels, length), a volume three sides.
        hidden: Sizes of the hidden layers.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        poses: masked poses [B, J, D]; returns images [B, C, H, W] in [0, 1], or signals [B, C, T] of any range.

    Example:
        >>> import torch
        >>> MLPDecoder(10, 16, (1, 28, 28))(torch.zeros(2, 10, 16)).shape
        torch.Size([2, 1, 28, 28])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        image_shape: tuple[int, ...],
        hidden: tuple[int, ...] = (512, 1024),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = [num_classes * dim, *hidden, math.prod(image_shape)]
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes[:-1]):
            layers += [nn.Linear(before, after, **factory), nn.ReLU()]
        layers += [nn.Linear(sizes[-2], sizes[-1], **factory), _output_range(image_shape), nn.Unflatten(1, image_shape)]
        self.layers = nn.Sequential(*layers)

    def forward(self, poses: Tensor) -> Tensor:
        """Reconstruct images.

        Args:
            poses: Class poses, all but one of them zero; see `mask_capsules`.

        Shape:
            poses: [B, J, D]; returns [B, C, H, W].

        Returns:
            Images in [0, 1].
        """
        return self.layers(poses)  # [B, C, H, W]


@DECODERS.register("deconv")
class DeconvDecoder(nn.Module):
    """Decoder of transposed convolutions, with about a tenth of the parameters of `MLPDecoder`.

    A linear layer computes a map of a quarter of the image's size; two transposed convolutions enlarge it. Rows and
    columns beyond an odd size are cropped.

    Args:
        num_classes: Number of class capsules J.
        dim: Pose size D.
        image_shape: Channels, height and width of the images; a signal has (channels, length), a volume three sides.
        channels: Channels of the three maps.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        poses: masked poses [B, J, D]; returns images [B, C, H, W] in [0, 1], or signals [B, C, T] of any range.

    Raises:
        ConfigError: If there are not three channel counts.

    Example:
        >>> import torch
        >>> DeconvDecoder(10, 16, (3, 33, 30))(torch.zeros(2, 10, 16)).shape
        torch.Size([2, 3, 33, 30])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        image_shape: tuple[int, ...],
        channels: tuple[int, int, int] = (16, 16, 8),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        depth, *sides = image_shape
        conv, transposed = CONVS[len(sides)], TRANSPOSED_CONVS[len(sides)]
        if len(channels) != 3:
            raise ConfigError(f"channels: expected three counts, got {channels} ({len(channels)})")
        self.image_shape = image_shape
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        grid = (channels[0], *(math.ceil(side / 4) for side in sides))
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(num_classes * dim, math.prod(grid), **factory),
            nn.ReLU(),
            nn.Unflatten(1, grid),
            transposed(channels[0], channels[1], 4, stride=2, padding=1, **factory),
            nn.ReLU(),
            transposed(channels[1], channels[2], 4, stride=2, padding=1, **factory),
            nn.ReLU(),
            conv(channels[2], depth, 3, padding=1, **factory),
            _output_range(image_shape),
        )

    def forward(self, poses: Tensor) -> Tensor:
        """Reconstruct images.

        Args:
            poses: Class poses, all but one of them zero; see `mask_capsules`.

        Shape:
            poses: [B, J, D]; returns [B, C, H, W].

        Returns:
            Images in [0, 1].
        """
        sides = (slice(side) for side in self.image_shape[1:])
        return self.layers(poses)[(..., *sides)]  # [B, C, H, W]


def _output_range(image_shape: tuple[int, ...]) -> nn.Module:
    """Return the last layer of a decoder: pixels lie in [0, 1], standardised signals anywhere."""
    return nn.Identity() if len(image_shape) == 2 else nn.Sigmoid()
