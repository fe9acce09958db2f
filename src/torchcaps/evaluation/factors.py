"""What is known of the images of a data set: viewpoints, shifts and other factors that vary within a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, InMemoryDataset, to_float
from torchcaps.data.counter_rng import uniforms
from torchcaps.data.eth80 import TURNABLE
from torchcaps.data.transforms import affine, shift

# Largest transformations of images of data sets without known factors.
DEGREES, SLOPE, SCALE, PIXELS = 25.0, 0.2, 0.15, 3
_SEED = 24


@dataclass(frozen=True)
class Factor:
    """A known factor.

    Attributes:
        name: Its name in tables.
        meta: Name in `data.meta`; negative values of angles and categories are unknown.
        kind: `value`; `angle`, which goes around and is predicted as sine and cosine; or `category`, predicted as one
            indicator per category.
        turn: Number that an angle reaches after a full turn.
        symmetry: Name in `data.meta` of the number of equal orientations in a full turn.
        classes: Names of the classes in which it can be seen; by default all.
    """

    name: str
    meta: str
    kind: Literal["value", "angle", "category"] = "value"
    turn: float = 360.0
    symmetry: str | None = None
    classes: tuple[str, ...] | None = None

    def targets(self, data: ImageDataset) -> tuple[Tensor, Tensor]:
        """Return what is predicted.

        Args:
            data: Images with this factor.

        Returns:
            The targets [N, T], float64, and which of them are known, bool [N].
        """
        values = data.meta[self.meta].double()  # [N]
        known = torch.ones(len(values), dtype=torch.bool) if self.kind == "value" else values >= 0
        if self.classes is not None:
            known &= torch.isin(data.labels, torch.tensor([data.class_names.index(name) for name in self.classes]))
        if self.kind == "value":
            return values[:, None], known
        if self.kind == "category":
            return (values[:, None] == values[known].unique()).double(), known
        turns = 1 if self.symmetry is None else data.meta[self.symmetry]
        angle = values * turns * (2 * torch.pi / self.turn)
        return torch.stack([angle.sin(), angle.cos()], dim=1), known


_TRANSFORMED = (
    Factor("angle", "degrees"),
    Factor("scale", "factor"),
    Factor("shear", "slope"),
    Factor("shift right", "right"),
    Factor("shift down", "down"),
)
FACTORS: dict[str, tuple[Factor, ...]] = {
    "smallnorb": (
        Factor("azimuth", "azimuth", "angle", turn=36),
        Factor("elevation", "elevation"),
        Factor("lighting", "lighting", "category"),
    ),
    "affine_mnist": _TRANSFORMED,
    "translated_mnist": (Factor("shift right", "left"), Factor("shift down", "top")),
    "dsprites": (
        Factor("orientation", "orientation", "angle", symmetry="symmetry"),
        Factor("scale", "scale"),
        Factor("x", "x"),
        Factor("y", "y"),
    ),
    "eth80": (Factor("azimuth", "azimuth", "angle", classes=TURNABLE), Factor("polar angle", "polar")),
    "coil20": (Factor("azimuth", "azimuth", "angle"),),
}


def known_factors(data: ImageDataset) -> tuple[Factor, ...]:
    """Return the factors that are known of the images and differ between them.

    Args:
        data: The images.

    Returns:
        The factors; empty if nothing is known.

    Example:
        >>> from torchcaps import load_data
        >>> [factor.name for factor in known_factors(load_data("translated_mnist", "test", source="digits"))]
        ['shift right', 'shift down']
    """
    declared = FACTORS.get(data.name, _TRANSFORMED)
    found = [factor for factor in declared if factor.meta in data.meta]
    return tuple(factor for factor in found if _varies(*factor.targets(data)))


def _varies(targets: Tensor, known: Tensor) -> bool:
    return bool((targets[known] != targets[known][:1]).any())


def with_known_factors(data: ImageDataset) -> ImageDataset:
    """Return the images, transformed by known amounts if nothing is known of them.

    Each image is rotated by up to 25 degrees, scaled by 0.85 to 1.15, sheared by up to 0.2, shifted by up to 3 pixels.

    Args:
        data: The images.

    Returns:
        The same data set, or transformed images with the amounts in `meta`.

    Example:
        >>> from torchcaps import load_data
        >>> sorted(with_known_factors(load_data("digits", "test").subset(range(4))).meta)
        ['degrees', 'down', 'factor', 'right', 'slope']
    """
    if data.name in FACTORS:
        return data
    random = torch.from_numpy(uniforms(_SEED, torch.arange(len(data)).numpy(), 5))  # [N, 5]
    degrees, slope, scale = (2 * random[:, :3] - 1).mul(torch.tensor([DEGREES, SLOPE, SCALE])).unbind(1)  # [N]
    down, right = ((2 * PIXELS + 1) * random[:, 3:]).long().sub(PIXELS).unbind(1)  # [N]
    parts = []
    for place in torch.arange(len(data)).split(512):
        images = to_float(data.batch(place).images)
        amounts = (degrees[place].deg2rad().float(), 1 + scale[place].float(), slope[place].float())
        parts.append((255 * shift(affine(images, *amounts), down[place], right[place])).round().to(torch.uint8))
    meta = {"degrees": degrees, "slope": slope, "factor": 1 + scale, "down": down, "right": right}
    origin = f"{data.origin}, transformed by known amounts"
    return InMemoryDataset(data.name, data.split, torch.cat(parts), data.labels, data.class_names, origin, meta)
