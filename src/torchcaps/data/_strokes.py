"""Drawing of line figures as bytes: the brightness of a pixel follows from its distance to a figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Also of single precision: pixels are bytes in the end.
Floats = NDArray[np.floating[Any]]


def pixel_grid(side: int) -> tuple[Floats, Floats]:
    """Return the offsets of all pixels from the centre, x to the right [1, 1, side] and y down [1, side, 1].

    Args:
        side: Side of the image.

    Returns:
        Both offsets.
    """
    line = np.arange(side) - (side - 1) / 2
    return line[None, None, :], line[None, :, None]


def ink(distance: Floats, width: float = 0.9) -> Floats:
    """Return the brightness at a distance from a figure: 1 within `width`, 0 one pixel further.

    Args:
        distance: Distances in pixels, negative inside.
        width: Half of the width of a line.

    Returns:
        Brightness from 0 to 1.
    """
    return np.clip(width + 0.5 - np.abs(distance), 0, 1)


def segment(x: Floats, y: Floats, half_length: float | Floats) -> Floats:
    """Return the distance of points to a level line through the origin.

    Args:
        x: Horizontal offsets.
        y: Vertical offsets.
        half_length: Half of its length.

    Returns:
        Distances.
    """
    return np.hypot(np.maximum(np.abs(x) - half_length, 0), y)


def column(values: NDArray[np.generic]) -> Floats:
    """Return values [n] as [n, 1, 1].

    Args:
        values: One value per sample.

    Returns:
        The same values, to be combined with a grid of pixels.
    """
    return values.astype(np.float64).reshape(-1, 1, 1)
