"""Augmentation: random changes to a batch of training images, each image with a draw of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.errors import ConfigError, ShapeError


@dataclass(frozen=True)
class Augment:
    """What happens to images between storage and model: at random in training, `fixed` in every evaluation.

    `shift`: up to so many whole pixels in each direction, exact, zeros enter (Sabour et al. 2017 take 2).
    `rotate`: up to so many degrees either way. `scale`: by a factor of 1 - scale to 1 + scale. `shear`: a slope of up
    to so much either way. `elastic`: the points of a 5x5 grid over the image go their own ways, by up to so many pixels
    along each axis, and what lies between them follows smoothly (after Simard et al. 2003). These four share one
    bilinear interpolation, which blurs a little; `bent` is the share of the images that go through it, so that a
    network may also learn from images as sharp as those that it is asked about. `flip`: mirrored left to right, each
    image with probability one half. `erase`: a rectangle of zeros whose sides are up to this fraction of the image's.
    `brightness`: up to so much added or taken away; `contrast`: distances from the channel's mean times 1 - contrast to
    1 + contrast; both keep to [0, 1].
    `crop`: a square of this size, somewhere in training, the centre in evaluation; 0 keeps all.

    The draws are made on the CPU in a fixed order, so that a generator in the same state gives the same images
    anywhere. Without options nothing changes.

    >>> generator = torch.Generator().manual_seed(0)
    >>> Augment(shift=2)(torch.rand(8, 1, 28, 28), generator).shape
    torch.Size([8, 1, 28, 28])
    """

    shift: int = 0
    rotate: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    elastic: float = 0.0
    bent: float = 1.0
    flip: bool = False
    erase: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    crop: int = 0

    def __post_init__(self) -> None:
        for name in ("shift", "crop"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(f"{name}: expected a count of pixels, got {value!r}")
        for name, most in (("rotate", 180), ("scale", 0.99), ("shear", 10), ("elastic", 100)):
            _check_range(name, getattr(self, name), most)
        for name in ("bent", "erase", "brightness", "contrast"):
            _check_range(name, getattr(self, name), 1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Images [B, C, H, W] in [0, 1], each changed by its own draw; the images handed in stay as they are."""
        _check_images(images)
        draw = _Draw(len(images), images, generator)
        if self.rotate or self.scale or self.shear or self.elastic:
            angle, factor = draw.floats(math.radians(self.rotate)), 1 + draw.floats(self.scale)
            slope = draw.floats(self.shear)
            moves = draw.floats(self.elastic, 2, 5, 5) if self.elastic else None
            bent = transforms.affine(images, angle, factor, slope, moves)
            if self.bent < 1:
                chosen = (draw.floats(0.5) + 0.5).view(-1, 1, 1, 1) < self.bent  # [B, 1, 1, 1]
                bent = torch.where(chosen, bent, images)
            images = bent
        if self.flip:
            images = torch.where(draw.floats(1).view(-1, 1, 1, 1) < 0, images.flip(-1), images)
        if self.shift:
            down, right = (draw.integers(2 * self.shift) - self.shift for _ in range(2))
            images = transforms.shift(images, down, right)
        if self.crop:
            # The centre crop fits wherever a random one does, and its error says why one does not.
            transforms.crop(images, self.crop)
            tops, lefts = (draw.integers(side - self.crop) for side in images.shape[-2:])
            images = transforms.windows(images, tops, lefts, self.crop, self.crop)
        if self.brightness or self.contrast:
            brighter = draw.floats(self.brightness)
            images = transforms.relight(images, brighter, 1 + draw.floats(self.contrast))
        if self.erase:
            images = self._erase(images, draw)
        return images

    def fixed(self, images: Tensor) -> Tensor:
        """The same without the random part, for evaluation: the centre crop."""
        _check_images(images)
        return transforms.crop(images, self.crop) if self.crop else images

    def output_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """The shape of the images that the model gets, from that of the images in storage.

        >>> Augment(crop=32).output_shape((2, 48, 48))
        (2, 32, 32)
        """
        return (image_shape[0], self.crop, self.crop) if self.crop else image_shape

    def _erase(self, images: Tensor, draw: _Draw) -> Tensor:
        height, width = images.shape[-2:]
        heights = draw.integers(int(self.erase * height))  # [B]
        widths = draw.integers(int(self.erase * width))  # [B]
        # A place between 0 and what the rectangle leaves free, so that it lies wholly inside.
        tops = (draw.floats(0.5) + 0.5).mul(height - heights + 1).long().minimum(height - heights)
        lefts = (draw.floats(0.5) + 0.5).mul(width - widths + 1).long().minimum(width - widths)
        return transforms.erase(images, tops, lefts, heights, widths)


class _Draw:
    """Numbers for each sample, drawn on the CPU and handed over to where the images are."""

    def __init__(self, count: int, like: Tensor, generator: torch.Generator) -> None:
        self.count = count
        self.like = like
        self.generator = generator

    def floats(self, most: float, *each: int) -> Tensor:
        """[B], or [B, *each], evenly from -most to most."""
        draws = torch.rand(self.count, *each, generator=self.generator, dtype=torch.float64)
        return ((2 * draws - 1) * most).to(self.like)

    def integers(self, most: int) -> Tensor:
        """[B], evenly from 0 to most."""
        return torch.randint(0, most + 1, (self.count,), generator=self.generator).to(self.like.device)


def _check_range(name: str, value: float, most: float) -> None:
    # Written so that NaN fails too.
    if isinstance(value, bool) or not 0 <= value <= most:
        raise ConfigError(f"{name}: expected a number from 0 to {most}, got {value!r}")


def _check_images(images: Tensor) -> None:
    if images.dim() != 4 or not images.is_floating_point():
        raise ShapeError(f"images: expected floats [B, C, H, W], got {images.dtype} {tuple(images.shape)}")
