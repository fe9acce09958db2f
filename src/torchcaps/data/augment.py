"""Random augmentation of batches of training images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data import transforms
from torchcaps.errors import ConfigError, ShapeError


@dataclass(frozen=True)
class Augment:
    """Augment a batch of images at random in training; `fixed` is the deterministic part for evaluation.

    `rotate`, `scale`, `shear` and `elastic` share one bilinear interpolation, which blurs a little; so does
    `resized_crop`, without `elastic`, `shift` and `crop`. `warp_prob` leaves some images as sharp as those of the
    evaluation. Without options nothing changes. Random numbers are drawn on the
    CPU in a fixed order, so that a generator in the same state gives the same images on every device.

    Attributes:
        shift: Largest shift in each direction, in whole pixels; zeros enter (Sabour et al. 2017 use 2).
        rotate: Largest rotation either way, in degrees.
        scale: Scale factors lie in 1 - scale to 1 + scale.
        shear: Largest slope either way.
        elastic: Largest displacement, in pixels along each axis, of the points of a 5x5 grid over the image; cubic
            interpolation between them (after Simard et al. 2003).
        warp_prob: Probability that an image is warped by the four above.
        flip: Whether to mirror each image left to right with probability 1/2.
        turn: Whether to turn each image by a random number of quarters; square images only.
        erase: Largest side of a rectangle of zeros, as a fraction of the side of the image.
        brightness: Largest value that is added or subtracted.
        contrast: Distances from the mean of a channel are scaled by 1 - contrast to 1 + contrast.
        crop: Side of a square crop: random in training, the centre in evaluation; 0 for none.
        resized_crop: Largest fraction of the area that is cut away; the random window, 3/4 to 4/3 times as wide as the
            image in proportion to its height, is scaled back to the size of the image.
        saturation: The distance from grey is scaled by 1 - saturation to 1 + saturation; colour images only.
        hue: Largest turn of the colours either way, as a fraction of the colour circle; colour images only.
        mixup: Parameter of the beta distribution of the shares in which pairs of images of a batch are blended, and
            their losses with them (Zhang et al. 2018); 0 for none. The trainer does it.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> Augment(shift=2)(torch.rand(8, 1, 28, 28), generator).shape
        torch.Size([8, 1, 28, 28])
    """

    shift: int = 0
    rotate: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    elastic: float = 0.0
    warp_prob: float = 1.0
    flip: bool = False
    turn: bool = False
    erase: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    crop: int = 0
    resized_crop: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    mixup: float = 0.0

    def __post_init__(self) -> None:
        for name in ("shift", "crop"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(f"{name}: expected a number of pixels, got {value!r}")
        for name, limit in (("rotate", 180), ("scale", 0.99), ("shear", 10), ("elastic", 100)):
            _check_range(name, getattr(self, name), limit)
        for name in ("warp_prob", "erase", "brightness", "contrast", "saturation"):
            _check_range(name, getattr(self, name), 1)
        for name, limit in (("resized_crop", 0.95), ("hue", 0.5), ("mixup", 100)):
            _check_range(name, getattr(self, name), limit)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment each image with random numbers of its own.

        Args:
            images: Images in [0, 1]; they are not changed in place.
            generator: CPU generator of the random numbers.

        Shape:
            images: [B, C, H, W]; returns [B, C, H, W], or [B, C, crop, crop].

        Returns:
            The augmented images.

        Raises:
            ShapeError: If the images are not floats [B, C, H, W], smaller than `crop`, or not square with `turn`.
        """
        if self._leaves(images):
            return images
        if self.turn and images.shape[-1] != images.shape[-2]:
            raise ShapeError(f"images: expected square images to turn by quarters, got {tuple(images.shape)}")
        draw = _Draw(len(images), images, generator)
        if self.resized_crop and not (self.elastic or self.shift or self.crop):
            images = transforms.resample(images, self._map(images, draw))
        else:
            images = self._move(images, draw)
        images = self._recolour(images, draw)
        if self.erase:
            images = self._erase(images, draw)
        return images

    def _map(self, images: Tensor, draw: _Draw) -> Tensor:
        """Return the maps of rotation, scaling, shear, flip and resized crop in one, [B, 2, 3]: one interpolation."""
        height, width = images.shape[-2:]
        last = torch.tensor([[[0.0, 0.0, 1.0]]]).to(images).expand(len(images), 1, 3)
        maps = torch.eye(2, 3).to(images).expand(len(images), 2, 3)
        if self.rotate or self.scale or self.shear:
            angle, factor = draw.floats(math.radians(self.rotate)), 1 + draw.floats(self.scale)
            warped = transforms.affine_map((height, width), angle, factor, draw.floats(self.shear))
            maps = torch.where(self._chosen(draw).view(-1, 1, 1), warped, maps)
        if self.flip:
            mirrored = torch.where(draw.floats(1) < 0, -1.0, 1.0).to(images)  # [B]
            maps = torch.stack([maps[:, :, 0] * mirrored[:, None], maps[:, :, 1], maps[:, :, 2]], dim=2)
        if self.turn:
            quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).to(images)
            quarters = torch.stack([quarter.matrix_power(k) for k in range(4)])[draw.integers(3)]  # [B, 2, 2]
            maps = torch.cat([maps[:, :, :2] @ quarters, maps[:, :, 2:]], dim=2)
        return maps @ torch.cat([self._window(draw), last], dim=1)

    def _chosen(self, draw: _Draw) -> Tensor:
        """Return which images are warped, bool [B]."""
        if self.warp_prob == 1:
            return torch.ones(draw.count, dtype=torch.bool, device=draw.like.device)
        return draw.floats(0.5) + 0.5 < self.warp_prob

    def _move(self, images: Tensor, draw: _Draw) -> Tensor:
        """Return the images rotated, scaled, sheared, displaced, mirrored, shifted and cropped, step by step."""
        if self.rotate or self.scale or self.shear or self.elastic:
            angle, factor = draw.floats(math.radians(self.rotate)), 1 + draw.floats(self.scale)
            slope = draw.floats(self.shear)
            moves = draw.floats(self.elastic, 2, 5, 5) if self.elastic else None
            warped = transforms.affine(images, angle, factor, slope, moves)
            images = torch.where(self._chosen(draw).view(-1, 1, 1, 1), warped, images) if self.warp_prob < 1 else warped
        if self.flip:
            images = torch.where(draw.floats(1).view(-1, 1, 1, 1) < 0, images.flip(-1), images)
        if self.turn:
            quarters = draw.integers(3).view(-1, 1, 1, 1)
            for number, turned in enumerate([images.rot90(k, (-2, -1)) for k in (1, 2, 3)], 1):
                images = torch.where(quarters == number, turned, images)
        if self.shift:
            down, right = (draw.integers(2 * self.shift) - self.shift for _ in range(2))
            images = transforms.shift(images, down, right)
        if self.crop:
            # The centre crop fits if a random crop does, and raises a clear error if not.
            transforms.crop(images, self.crop)
            tops, lefts = (draw.integers(side - self.crop) for side in images.shape[-2:])
            images = transforms.windows(images, tops, lefts, self.crop, self.crop)
        return transforms.resample(images, self._window(draw)) if self.resized_crop else images

    def _recolour(self, images: Tensor, draw: _Draw) -> Tensor:
        if self.saturation or self.hue:
            saturation, hue = 1 + draw.floats(self.saturation), draw.floats(2 * math.pi * self.hue)
            if not (self.brightness or self.contrast):
                return transforms.recolour(images, saturation, hue)
            brighter = draw.floats(self.brightness)
            return transforms.recolour(images, saturation, hue, brighter, 1 + draw.floats(self.contrast))
        if self.brightness or self.contrast:
            brighter = draw.floats(self.brightness)
            return transforms.relight(images, brighter, 1 + draw.floats(self.contrast))
        return images

    def fixed(self, images: Tensor) -> Tensor:
        """Return the images without random changes, for evaluation: the centre crop.

        Args:
            images: Images in [0, 1].

        Shape:
            images: [B, C, H, W]; returns [B, C, H, W], or [B, C, crop, crop].

        Returns:
            The images, cropped if `crop` is set.
        """
        if self._leaves(images):
            return images
        return transforms.crop(images, self.crop) if self.crop else images

    def _leaves(self, images: Tensor) -> bool:
        """Return whether images are not changed because they are signals or volumes; else check them."""
        plain = self == Augment(mixup=self.mixup)
        if plain and images.is_floating_point() and images.dim() in (3, 5):
            return True
        _check_images(images)
        return False

    def output_shape(self, image_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the augmented images.

        Args:
            image_shape: Channels, height and width of the stored images.

        Returns:
            Channels, height and width of the input of the model.

        Example:
            >>> Augment(crop=32).output_shape((2, 48, 48))
            (2, 32, 32)
        """
        return (image_shape[0], self.crop, self.crop) if self.crop else image_shape

    def _window(self, draw: _Draw) -> Tensor:
        """Return the maps of the windows of a resized crop, [B, 2, 3]."""
        area = 1 - draw.floats(self.resized_crop / 2) - self.resized_crop / 2  # [B], from 1 - resized_crop to 1
        ratio = draw.floats(math.log(4 / 3)).exp()  # [B]
        heights, widths = (area / ratio).sqrt().clamp(max=1), (area * ratio).sqrt().clamp(max=1)
        tops = (draw.floats(0.5) + 0.5) * (1 - heights)
        lefts = (draw.floats(0.5) + 0.5) * (1 - widths)
        return transforms.window_map(tops, lefts, heights, widths)

    def _erase(self, images: Tensor, draw: _Draw) -> Tensor:
        height, width = images.shape[-2:]
        heights = draw.integers(int(self.erase * height))  # [B]
        widths = draw.integers(int(self.erase * width))  # [B]
        # A corner that keeps the whole rectangle inside the image.
        tops = (draw.floats(0.5) + 0.5).mul(height - heights + 1).long().minimum(height - heights)
        lefts = (draw.floats(0.5) + 0.5).mul(width - widths + 1).long().minimum(width - widths)
        return transforms.erase(images, tops, lefts, heights, widths)


class _Draw:
    """Random numbers for each image, drawn on the CPU and moved to the device of the images."""

    def __init__(self, count: int, like: Tensor, generator: torch.Generator) -> None:
        self.count = count
        self.like = like
        self.generator = generator

    def floats(self, limit: float, *each: int) -> Tensor:
        """Return uniform numbers from -limit to limit, [B] or [B, *each]."""
        draws = torch.rand(self.count, *each, generator=self.generator, dtype=torch.float64)
        return ((2 * draws - 1) * limit).to(self.like)

    def integers(self, limit: int) -> Tensor:
        """Return uniform integers from 0 to limit, [B]."""
        return torch.randint(0, limit + 1, (self.count,), generator=self.generator).to(self.like.device)


def _check_range(name: str, value: float, limit: float) -> None:
    # Written so that NaN fails too.
    if isinstance(value, bool) or not 0 <= value <= limit:
        raise ConfigError(f"{name}: expected a number from 0 to {limit}, got {value!r}")


def _check_images(images: Tensor) -> None:
    if images.dim() != 4 or not images.is_floating_point():
        hint = " (signals and volumes have no augmentation but mixup)" if images.dim() in (3, 5) else ""
        raise ShapeError(f"images: expected floats [B, C, H, W], got {images.dtype} {tuple(images.shape)}{hint}")
