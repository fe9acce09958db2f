"""Whether mirrored and turned images can be distinguished from the originals: which augmentation suits them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Side to which images are scaled, random filters, and their places in the image.
SIDE, FILTERS, PLACES = 32, 48, 4
# Images that are looked at, and the smallest number that allows a judgement.
MAX_IMAGES, MIN_IMAGES = 900, 200
# Largest fraction of pairs of an image and its copy in the right order; half of them are by chance.
CHANCE = 0.6


class Symmetry(NamedTuple):
    """Fractions of pairs of an image and its changed copy that a simple classifier puts in order; 0.5 is chance.

    Attributes:
        mirrored: The copy is mirrored left to right.
        turned: The copy is mirrored upside down, or turned by a quarter: the larger fraction.
    """

    mirrored: float
    turned: float

    @property
    def flips(self) -> bool:
        """Whether mirrored images look like the originals."""
        return self.mirrored <= CHANCE

    @property
    def turns(self) -> bool:
        """Whether images have no upper side, such as those of satellites and microscopes."""
        return self.flips and self.turned <= CHANCE


def find_symmetry(images: Tensor) -> Symmetry | None:
    """Try to distinguish images from their mirrored and turned copies.

    A linear classifier on random convolutions is fitted to two thirds of the pairs and evaluated on the others.
    Photographs and digits have an upper side, which it finds almost always; images of the ground from above have none.

    Args:
        images: Training images in [0, 1], in random order.

    Shape:
        images: [N, C, H, W].

    Returns:
        The fractions of pairs in the right order, or None if there are too few images.

    Example:
        >>> find_symmetry(torch.rand(300, 1, 32, 32)).turns
        True
    """
    if len(images) < MIN_IMAGES:
        return None
    images = F.interpolate(images[:MAX_IMAGES], (SIDE, SIDE), mode="area")
    images = images - images.mean(dim=(1, 2, 3), keepdim=True)
    images = images / images.std(dim=(1, 2, 3), keepdim=True).clamp(min=1e-3)
    filters = torch.randn(FILTERS, images.shape[1], 5, 5, generator=torch.Generator().manual_seed(0)) / 5
    features = _features(images, filters)  # [N, features]
    copies = images.flip(-1), images.flip(-2), images.rot90(1, (-2, -1))
    mirrored, upside_down, quarter = (_pairs_in_order(features, _features(copy, filters)) for copy in copies)
    return Symmetry(mirrored, max(upside_down, quarter))


def _pairs_in_order(originals: Tensor, copies: Tensor) -> float:
    """Return the fraction of pairs that a linear classifier of features [N, features] puts in the right order."""
    differences = originals - copies
    count = 2 * len(differences) // 3
    scale = differences[:count].square().mean(dim=0).sqrt().clamp(min=1e-6)
    known, new = (differences / scale).split([count, len(differences) - count])
    # Ridge regression in its dual form: a weight for each known pair.
    kernel = known @ known.T  # [count, count]
    kernel = kernel + 0.1 * kernel.diagonal().mean().clamp(min=1e-6) * torch.eye(count)
    weights = torch.linalg.solve(kernel, torch.ones(count))
    scores = new @ (known.T @ weights)  # [N - count]
    # Pairs without any difference, as of blank images, are in order by chance.
    return float(((scores > 0).float() + (scores == 0).float() / 2).mean())


def _features(images: Tensor, filters: Tensor) -> Tensor:
    """Return the means of random convolutions at a few places, and those of the pixels, [N, features]."""
    maps = F.conv2d(images, filters, padding=2).relu()
    means = F.adaptive_avg_pool2d(maps, PLACES), F.adaptive_avg_pool2d(images, 2 * PLACES)
    return torch.cat([each.flatten(1) for each in means], dim=1)
