"""Write a folder of small cluttered drawings, one sub-folder per class: test images for the `folder` recipe.

    python scripts/make_drawings.py my/drawings

Six classes with 60 to 150 images of 64 to 128 pixels: a shape of random position, size, angle and colour on a ground
with other lines and blobs, and noise. The images depend on the seed alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

# Outlines of each class in a square from -1 to 1, y downwards.
Outline = Sequence[tuple[float, float]]
CIRCLE: Outline = [(math.cos(k * math.pi / 8), math.sin(k * math.pi / 8)) for k in range(16)]


def _circle(x: float, y: float, radius: float) -> Outline:
    return [(x + radius * right, y + radius * down) for right, down in CIRCLE]


SHAPES: dict[str, list[Outline]] = {
    "arrow": [[(-1, -0.2), (0.2, -0.2), (0.2, -0.7), (1, 0), (0.2, 0.7), (0.2, 0.2), (-1, 0.2)]],
    "boat": [[(-1, 0.3), (1, 0.3), (0.6, 0.9), (-0.6, 0.9)], [(-0.05, 0.2), (-0.05, -1), (0.8, 0.2)]],
    "fish": [_circle(-0.2, 0, 0.6), [(0.3, 0), (1, -0.6), (1, 0.6)]],
    "house": [[(-0.7, 0), (0.7, 0), (0.7, 1), (-0.7, 1)], [(-1, 0), (0, -0.9), (1, 0)]],
    "key": [_circle(-0.6, 0, 0.4), [(-0.3, -0.12), (1, -0.12), (1, 0.5), (0.75, 0.5), (0.75, 0.12), (-0.3, 0.12)]],
    "star": [[(r * math.sin(k * math.pi / 5), -r * math.cos(k * math.pi / 5)) for k, r in enumerate([1.0, 0.42] * 5)]],
}
COUNTS = {"arrow": 120, "boat": 90, "fish": 70, "house": 100, "key": 60, "star": 150}


def draw(name: str, rng: np.random.Generator) -> Image.Image:
    """Draw one image of a class.

    Args:
        name: The class.
        rng: Source of the random numbers.

    Returns:
        The image, RGB, 64 to 128 pixels wide and high.
    """
    width, height = (int(side) for side in rng.integers(64, 129, 2))
    ground = rng.integers(60, 200, 3)
    image = Image.new("RGB", (width, height), tuple(map(int, ground)))
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(4, 10))):
        colour = tuple(map(int, rng.integers(0, 256, 3)))
        box = rng.uniform(0, 1, 4) * (width, height, width, height)
        if rng.random() < 0.6:
            pen.line(list(map(float, box)), fill=colour, width=int(rng.integers(1, 4)))
        else:
            x, y, radius = *box[:2], rng.uniform(2, 9)
            pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
    size = rng.uniform(0.24, 0.36) * min(width, height)
    centre = [width / 2 + rng.uniform(-0.13, 0.13) * width, height / 2 + rng.uniform(-0.13, 0.13) * height]
    angle = rng.uniform(-0.6, 0.6)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    # A colour that differs from the ground in every channel.
    fill = tuple(map(int, (ground + rng.integers(70, 186, 3)) % 256))
    for outline in SHAPES[name]:
        points = np.array(outline) @ turn * size + centre
        pen.polygon([(float(x), float(y)) for x, y in points], fill=fill)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 0.8))))
    pixels = np.asarray(image).astype(np.float64) + rng.normal(0, rng.uniform(2, 14), (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_drawings(folder: Path, seed: int = 0, share: float = 1.0) -> None:
    """Write the images as PNG files.

    Args:
        folder: New folder.
        seed: Seed of the images.
        share: Fraction of the images of each class.
    """
    for number, (name, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng([seed, number])
        (folder / name).mkdir(parents=True)
        for index in range(round(share * count)):
            draw(name, rng).save(folder / name / f"{index:03d}.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="new folder")
    parser.add_argument("--seed", type=int, default=0, help="seed of the images (default: 0)")
    arguments = parser.parse_args()
    make_drawings(arguments.folder, arguments.seed)
