"""Image files of any common kind, brought to the size and the channels that a model takes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from torchcaps.errors import ConfigError, DataError

SUFFIXES = frozenset(
    (".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
)
# More pixels than this are taken for an attack or a mistake, not for a picture.
MAX_PIXELS = 80_000_000
# Nor is a large picture that takes next to no bytes: a few kB of it would fill hundreds of MB.
LARGE, MAX_PER_BYTE = 2_000_000, 2_000
_GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_ORIENTATION_TAG = 0x0112


def read_image(path: str | Path, image_shape: tuple[int, int, int], *, invert: bool = False) -> Tensor:
    """One image file as bytes [C, H, W], whatever its size and kind.

    The camera's orientation is applied, transparent parts become white, and the whole picture is scaled (antialiased,
    proportions kept) to fit the shape; what is left at two sides gets the median colour of the picture's border.
    `invert` turns light into dark: for ink on paper, where the model knows light digits on black.
    """
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ConfigError(f"image_shape: expected 1 or 3 channels for an image file, got {image_shape}")
    with opened_image(Path(path)) as opened:
        image = _plain(ImageOps.exif_transpose(opened), "L" if channels == 1 else "RGB", Path(path))
    pixels = np.asarray(_fit(image, height, width)).reshape(height, width, channels)
    pixels = 255 - pixels if invert else pixels
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())  # [C, H, W]


def probe_image(path: Path) -> tuple[int, int, int]:
    """Channels (1 or 3), height and width of an image file, from its header alone."""
    with opened_image(path) as image:
        turned = image.getexif().get(_ORIENTATION_TAG, 1) >= 5
        grey = image.mode in _GREY_MODES or (image.mode == "P" and _grey_palette(image))
        width, height = image.size
    return 1 if grey else 3, *((width, height) if turned else (height, width))


class _Clipped(io.BufferedReader):
    """A file that is never asked for more than it holds: what a damaged length asks for would be set aside first."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def opened_image(path: Path) -> Iterator[Image.Image]:
    """An image file, open; too large a picture, or one that fails while it is used, is a DataError."""
    try:
        with _Clipped(path) as file, Image.open(file) as image:
            size = image.width * image.height
            if size > MAX_PIXELS or (size > LARGE and size > MAX_PER_BYTE * path.stat().st_size):
                raise Image.DecompressionBombError
            yield image
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: expected an image file, got no such file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(
            f"{path}: expected an image of at most {MAX_PIXELS:,} pixels, {MAX_PER_BYTE:,} for each byte of the file, "
            f"got more; scale it down"
        ) from None
    # Damaged files make Pillow's decoders fail in ways too many to list.
    except Exception as error:
        raise DataError(f"{path}: expected an image that can be read, got {error}; remove it or replace it") from None


def _plain(image: Image.Image, mode: str, path: Path) -> Image.Image:
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(f"{path}: expected 8 or 16 bits per channel, got values beyond 65535; convert it to PNG")
        image = Image.fromarray((values // 257).astype(np.uint8))
    if image.mode == "F":
        raise DataError(f"{path}: expected 8 or 16 bits per channel, got floating point; convert it to PNG")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _fit(image: Image.Image, height: int, width: int) -> Image.Image:
    if image.size == (width, height):
        return image
    factor = min(width / image.width, height / image.height)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    small = image.resize(size, Image.Resampling.BILINEAR)
    if size == (width, height):
        return small
    canvas = Image.new(image.mode, (width, height), _border_colour(image))
    canvas.paste(small, ((width - size[0]) // 2, (height - size[1]) // 2))
    return canvas


def _border_colour(image: Image.Image) -> int | tuple[int, ...]:
    right, bottom = image.width - 1, image.height - 1
    # Cut out one by one: the whole of a large picture would be copied for its edges.
    edges = [
        (0, 0, right + 1, 1),
        (0, bottom, right + 1, bottom + 1),
        (0, 0, 1, bottom + 1),
        (right, 0, right + 1, bottom + 1),
    ]
    border = np.concatenate(
        [np.asarray(image.crop(edge)).reshape(-1, len(image.getbands())) for edge in edges]
    )  # [n, C]
    colour = tuple(int(value) for value in np.median(border, axis=0))
    return colour if len(colour) == 3 else colour[0]


def _grey_palette(image: Image.Image) -> bool:
    colours = np.array(image.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    return bool((colours == colours[:, :1]).all())
