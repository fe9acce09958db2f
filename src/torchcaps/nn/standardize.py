"""Per-image standardisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError


class InstanceStandardize(nn.Module):
    """Give every image mean 0 and standard deviation 1 over all its pixels and channels.

    The deviation is at least 1 / sqrt(C*H*W), so that a constant image becomes zero. In training each image then gets a
    random contrast and brightness; before standardisation they would have no effect.

    Args:
        brightness: In training the mean is drawn uniformly from -brightness to brightness.
        contrast: In training the deviation is drawn uniformly from 1 - contrast to 1 + contrast.

    Shape:
        images: [B, C, H, W]; returns the same shape.

    Raises:
        ConfigError: If an option is out of range.

    Example:
        >>> InstanceStandardize()(torch.tensor([[[[0.0, 2.0, 0.0, 2.0]]]])).tolist()
        [[[[-1.0, 1.0, -1.0, 1.0]]]]
    """

    def __init__(self, *, brightness: float = 0.0, contrast: float = 0.0) -> None:
        super().__init__()
        if not brightness >= 0:
            raise ConfigError(f"brightness: expected a number of at least 0, got {brightness}")
        if not 0 <= contrast <= 1:
            raise ConfigError(f"contrast: expected a number from 0 to 1, got {contrast}")
        self.brightness = brightness
        self.contrast = contrast

    def forward(self, images: Tensor) -> Tensor:
        """Standardise images; in training, brightness and contrast then change at random.

        Args:
            images: A batch of images.

        Shape:
            images: [B, C, H, W]; returns the same shape.

        Returns:
            The standardised images.
        """
        variance, mean = torch.var_mean(images, dim=(1, 2, 3), correction=0, keepdim=True)  # [B, 1, 1, 1]
        images = (images - mean) / variance.clamp_min(1 / math.prod(images.shape[1:])).sqrt()  # [B, C, H, W]
        if not self.training or not (self.brightness or self.contrast):
            return images
        size, shift = (2 * torch.rand_like(mean) - 1 for _ in range(2))  # [B, 1, 1, 1]
        return images * (1 + self.contrast * size) + self.brightness * shift  # [B, C, H, W]

    def extra_repr(self) -> str:
        return f"brightness={self.brightness}, contrast={self.contrast}"
