"""Common corruptions of images at five severities.

After Hendrycks and Dietterich 2019, for small images; the strengths are our own. Random corruptions depend only on the
seed and the index of the image, so that every network sees the same images.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps._registry import Registry
from torchcaps.data import GeneratedDataset, ImageDataset, to_float
from torchcaps.data.counter_rng import uniforms
from torchcaps.data.dataset import Batch
from torchcaps.data.loader import mix_seed
from torchcaps.data.transforms import erase, relight
from torchcaps.errors import ConfigError

SEVERITIES = (1, 2, 3, 4, 5)

# Returns `count` uniform random numbers in [0, 1) for each image, [B, count].
Draw = Callable[[int], Tensor]
Corruption = Callable[[Tensor, int, Draw], Tensor]
CORRUPTIONS: Registry[Corruption] = Registry("corruption")


def corrupted(data: ImageDataset, kind: str, severity: int, *, seed: int = 0) -> GeneratedDataset:
    """Return the images of a data set with a corruption, computed on access.

    Args:
        data: Clean images.
        kind: A name of `CORRUPTIONS`.
        severity: From 1 to 5.
        seed: Seed of random corruptions.

    Returns:
        The corrupted data set.

    Raises:
        UnknownNameError: If there is no such corruption.
        ConfigError: If the severity is out of range.

    Example:
        >>> from torchcaps.data import load_data
        >>> corrupted(load_data("digits", "test"), "gaussian_noise", 3).image_shape
        (1, 28, 28)
    """
    change = CORRUPTIONS[kind]
    if severity not in SEVERITIES:
        raise ConfigError(f"severity: expected 1 to {SEVERITIES[-1]}, got {severity!r}")
    key = mix_seed(seed, int.from_bytes(kind.encode(), "big"), severity)

    def draw(numbers: Tensor) -> Batch:
        batch = data.batch(numbers)
        images = change(
            to_float(batch.images), severity, lambda count: torch.from_numpy(uniforms(key, numbers.numpy(), count))
        )
        return batch._replace(images=images.clamp(0, 1).mul(255).round().to(torch.uint8))

    origin = f"{data.origin}, {kind.replace('_', ' ')} of severity {severity}"
    return GeneratedDataset(data.name, data.split, data.class_names, origin, len(data), draw)


def _per_pixel(images: Tensor, draw: Draw) -> Tensor:
    return draw(math.prod(images.shape[1:])).view(images.shape)


def _normal(images: Tensor, draw: Draw) -> Tensor:
    """Return normal random numbers for every pixel, by the Box-Muller transform."""
    pixels = math.prod(images.shape[1:])
    first, second = draw(2 * pixels).split(pixels, dim=1)  # [B, pixels]
    radius = (-2 * torch.log1p(-first)).sqrt()
    return (radius * torch.cos(2 * math.pi * second)).view(images.shape).float()


@CORRUPTIONS.register("gaussian_noise")
def _gaussian_noise(images: Tensor, severity: int, draw: Draw) -> Tensor:
    return images + 0.08 * severity * _normal(images, draw)


@CORRUPTIONS.register("speckle_noise")
def _speckle_noise(images: Tensor, severity: int, draw: Draw) -> Tensor:
    return images * (1 + 0.15 * severity * _normal(images, draw))


@CORRUPTIONS.register("impulse_noise")
def _impulse_noise(images: Tensor, severity: int, draw: Draw) -> Tensor:
    share, fate = 0.04 * severity, _per_pixel(images, draw)
    return images.masked_fill(fate < share / 2, 0).masked_fill(fate >= 1 - share / 2, 1)


@CORRUPTIONS.register("gaussian_blur")
def _gaussian_blur(images: Tensor, severity: int, draw: Draw) -> Tensor:
    deviation = 0.5 * severity
    reach = math.ceil(3 * deviation)
    line = torch.exp(-torch.arange(-reach, reach + 1).square() / (2 * deviation**2))
    return _convolve(_convolve(images, line.view(1, -1)), line.view(-1, 1))


@CORRUPTIONS.register("motion_blur")
def _motion_blur(images: Tensor, severity: int, draw: Draw) -> Tensor:
    return _convolve(images, torch.ones(1, 2 * severity + 1))


@CORRUPTIONS.register("brightness")
def _brightness(images: Tensor, severity: int, draw: Draw) -> Tensor:
    return images + 0.12 * severity


@CORRUPTIONS.register("contrast")
def _contrast(images: Tensor, severity: int, draw: Draw) -> Tensor:
    return relight(images, torch.zeros(len(images)), torch.full((len(images),), 1 - 0.18 * severity))


@CORRUPTIONS.register("occlusion")
def _occlusion(images: Tensor, severity: int, draw: Draw) -> Tensor:
    sizes = [max(1, round(0.1 * severity * side)) for side in images.shape[-2:]]
    random = draw(2)  # [B, 2]
    corners = [(random[:, k] * (images.shape[k - 2] - sizes[k] + 1)).long() for k in range(2)]
    return erase(images, *corners, *(torch.full_like(corners[0], size) for size in sizes))


@CORRUPTIONS.register("pixelate")
def _pixelate(images: Tensor, severity: int, draw: Draw) -> Tensor:
    height, width = images.shape[-2:]
    share = (0.5, 0.4, 0.33, 0.25, 0.2)[severity - 1]
    small = F.interpolate(images, (max(1, round(share * height)), max(1, round(share * width))), mode="area")
    return F.interpolate(small, (height, width), mode="nearest")


def _convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Convolve each channel with a normalised kernel of odd size; edges are replicated."""
    channels, (height, width) = images.shape[1], kernel.shape
    padded = F.pad(images, (width // 2, width // 2, height // 2, height // 2), mode="replicate")
    weight = (kernel / kernel.sum()).expand(channels, 1, height, width)
    return F.conv2d(padded, weight.to(images), groups=channels)
