"""Image files of common formats, scaled to the size and channels of a model.

Only the listed formats are opened: other plugins of Pillow start external programs (EPS) or are rarely maintained.
Memory for decoding is bounded over all threads of the process together.
"""

from __future__ import annotations

import ctypes
import io
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchcaps._extras import explain_missing
from torchcaps._files import open_regular
from torchcaps.data.readers._decoder_memory import decoder_memory, per_pixel
from torchcaps.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = frozenset(
    (".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
)
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
# Bytes of memory for decoding, over all threads together.
MEMORY = 512_000_000
# An image that takes more returns its memory to the system at once.
_TRIM_BYTES = 32_000_000
# Threads that decode the images of a folder.
MAX_THREADS = 8
MAX_PIXELS = 80_000_000
# How messages name an image that is not a file.
IMAGE = "image"
# A large image of few bytes is a decompression bomb.
LARGE, MAX_PER_BYTE = 2_000_000, 2_000
# Formats that Pillow reads whole into memory before their size is known.
_MAX_WHOLE_FILE = 16_000_000
# Opening a GIF file may allocate its first frame, of at most as many pixels as Pillow accepts.
_GIF_OPENING = 180_000_000
# Larger images are reduced strip by strip while they are converted; smaller ones are converted as a whole.
_WHOLE_PIXELS, _STRIP_PIXELS = 4_000_000, 1_000_000
# Memory per pixel of the decoded image and its conversions, for a small and for a large image.
_WHOLE_BYTES, _REDUCED_BYTES = 24, 4
_GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_ORIENTATION_TAG = 0x0112


def read_image(
    path: str | Path | bytes,
    image_shape: tuple[int, ...],
    *,
    invert: bool = False,
    max_pixels: int | None = None,
) -> Tensor:
    """Read an image file of any size and scale it to a shape.

    The EXIF orientation is applied, and transparent pixels become white. The image is scaled with antialiasing and
    kept in proportion; the remaining border gets the median colour of the edges of the image.

    Args:
        path: A file in one of the formats PNG, JPEG, GIF, BMP, TIFF, WebP, PPM, JPEG 2000 and AVIF, or its content.
        image_shape: Channels (1 or 3), height and width of the result.
        invert: Whether to invert the brightness: for ink on paper and a model of light digits on black.
        max_pixels: Largest number of pixels in the file. Default: 80 million.

    Shape:
        Returns uint8 [C, H, W].

    Returns:
        The image, uint8 [C, H, W].

    Raises:
        ConfigError: If the number of channels is not 1 or 3.
        DataError: If the file is missing, damaged, too large, or of another format.

    Example:
        >>> read_image("digit.png", (1, 28, 28)).shape  # doctest: +SKIP
    """
    if len(image_shape) != 3:
        raise ConfigError(f"image_shape: expected (channels, height, width) for an image file, got {image_shape}")
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ConfigError(f"image_shape: expected 1 or 3 channels for an image file, got {image_shape}")
    mode = "L" if channels == 1 else "RGB"
    source, name = (path, IMAGE) if isinstance(path, bytes) else (Path(path), str(path))
    # The memory is released after the image is closed.
    with ExitStack() as reservation, open_image(source, max_pixels) as (image, memory):
        pixels = image.width * image.height
        whole = pixels <= _WHOLE_PIXELS
        copies = pixels * (_WHOLE_BYTES if whole else _REDUCED_BYTES)
        reservation.enter_context(reserved(copies + memory))
        plain = _plain(image, mode, name) if whole else _reduced(image, mode, (height, width), name)
        plain = _upright(plain, image)
    array = np.asarray(fit_image(plain, height, width)).reshape(height, width, channels)
    array = 255 - array if invert else array
    return torch.from_numpy(array.transpose(2, 0, 1).copy())  # [C, H, W]


def probe_image(path: Path) -> tuple[int, int, int]:
    """Return channels (1 or 3), height and width of an image file from its header."""
    with explain_missing():
        from PIL import Image

    with open_image(path) as (image, _):
        # The method of PNG files decodes all pixels, to find EXIF data behind them: outside of the bounded memory.
        exif = Image.Image.getexif(image) if image.format == "PNG" else image.getexif()
        turned = exif.get(_ORIENTATION_TAG, 1) >= 5
        grey = image.mode in _GREY_MODES or (image.mode == "P" and _grey_palette(image))
        width, height = image.size
    return 1 if grey else 3, *((width, height) if turned else (height, width))


@contextmanager
def open_image(source: Path | bytes, max_pixels: int | None = None) -> Iterator[tuple[Image.Image, int]]:
    """Open an image file or its content, and yield it with the bytes that its decoder takes beside the decoded image.

    A large image, another format, or an error while it is used is a DataError.
    """
    with explain_missing():
        from PIL import Image

    path = IMAGE if isinstance(source, bytes) else source
    try:
        reader = _ClippedReader(io.BytesIO(source), IMAGE) if isinstance(source, bytes) else _open_file(source)
        # Closing frees the pixels, also where the traceback of an error still refers to the image.
        with reader as file, closing(_open_reserved(file)) as image:
            pixels = image.width * image.height
            limit = min(MAX_PIXELS if max_pixels is None else max_pixels, MEMORY // (_REDUCED_BYTES + per_pixel(image)))
            if pixels > limit or (pixels > LARGE and pixels > MAX_PER_BYTE * file.size):
                raise DataError(
                    f"{path}: expected at most {limit:,} pixels in a {image.format} file, and {MAX_PER_BYTE:,} per "
                    f"byte, got {pixels:,} (scale it down)"
                )
            memory = decoder_memory(image, file)
            if _REDUCED_BYTES * pixels + memory > MEMORY:
                raise DataError(
                    f"{path}: expected an image that is decoded with at most {MEMORY:,} bytes, got one of {memory:,} "
                    f"for {pixels:,} pixels (large tiles, or small blocks; save it as PNG)"
                )
            yield image, memory
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: expected an image file, but there is no such file") from None
    except Image.UnidentifiedImageError:
        raise DataError(f"{path}: expected an image in one of {', '.join(FORMATS)}, got another file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{path}: expected at most {MAX_PIXELS:,} pixels, got more (scale it down)") from None
    # Pillow's decoders raise many kinds of errors for damaged files.
    except Exception as error:
        raise DataError(f"{path}: expected a readable image, got {error} (the file is damaged)") from None


def open_formats(file: IO[bytes]) -> Image.Image:
    """Open an image in one of the listed formats, and in no other."""
    from PIL import Image

    return Image.open(file, formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    # Pillow may be built without some of them.
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _open_reserved(file: _ClippedReader) -> Image.Image:
    """Open an image; its memory for that counts as long as it takes."""
    if not file.head.startswith(b"GIF"):
        return open_formats(file)
    with reserved(_GIF_OPENING):
        return open_formats(file)


def _open_file(path: Path) -> _ClippedReader:
    return _ClippedReader(open_regular(path).detach(), str(path))


class _ClippedReader(io.BufferedReader):
    """A file that never allocates more than it holds, whatever a damaged length announces."""

    def __init__(self, file: Any, path: str) -> None:
        super().__init__(file)
        self.size = self.seek(0, io.SEEK_END)
        self.seek(0)
        head = self.head = self.read(12)
        self.seek(0)
        if (head[8:] == b"WEBP" or head[4:8] == b"ftyp") and self.size > _MAX_WHOLE_FILE:
            self.close()
            raise DataError(f"{path}: expected at most {_MAX_WHOLE_FILE:,} bytes, got {self.size:,} (scale it down)")

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self.size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


class _Budget:
    """Bytes that all threads share; a thread waits until its bytes are available."""

    def __init__(self) -> None:
        self.used = 0
        self.changed = threading.Condition()

    def acquire(self, size: int) -> None:
        with self.changed:
            # The largest image may exceed the total and is then decoded alone.
            self.changed.wait_for(lambda: self.used == 0 or self.used + size <= MEMORY)
            self.used += size

    def release(self, size: int) -> None:
        with self.changed:
            self.used -= size
            self.changed.notify_all()


_BUDGET = _Budget()


@contextmanager
def reserved(size: int) -> Iterator[None]:
    """Count bytes for decoding, for the length of a block; wait until they are available.

    Args:
        size: Number of bytes.

    Yields:
        Nothing.
    """
    _BUDGET.acquire(size)
    try:
        yield
    finally:
        if size > _TRIM_BYTES:
            _trim()
        _BUDGET.release(size)


def _trim() -> None:
    """Return freed memory to the system: glibc keeps it for each thread, which adds up over many threads."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _plain(image: Image.Image, mode: str, path: str) -> Image.Image:
    """Convert an image of any mode to `L` or `RGB`, with transparent pixels white."""
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(f"{path}: expected 8 or 16 bits per channel, got values beyond 65535 (convert it to PNG)")
        image = Image.fromarray((values // 257).astype(np.uint8))
    if image.mode == "F":
        raise DataError(f"{path}: expected 8 or 16 bits per channel, got floating point (convert it to PNG)")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _reduced(image: Image.Image, mode: str, target: tuple[int, int], path: str) -> Image.Image:
    """Convert a large image like `_plain`, reduced to about four times the target, without a full-size copy."""
    from PIL import Image

    # Either side may become the height, by the EXIF orientation.
    side = 4 * max(target)
    # JPEG decodes at a fraction of the size.
    image.draft(None, (side, side))
    width, height = image.size
    factor = max(1, max(width, height) // side)
    rows = max(1, _STRIP_PIXELS // width // factor) * factor
    reduced = Image.new(mode, (-(-width // factor), -(-height // factor)))
    for top in range(0, height, rows):
        strip = _plain(image.crop((0, top, width, min(height, top + rows))), mode, path)
        reduced.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    return reduced


def _upright(plain: Image.Image, original: Image.Image) -> Image.Image:
    """Apply the EXIF orientation of the original."""
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(original.getexif().get(_ORIENTATION_TAG, 1))
    return plain if turn is None else plain.transpose(turn)


def fit_image(image: Image.Image, height: int, width: int) -> Image.Image:
    """Scale an image in proportion to fit a size, with a border of the median colour of its edges.

    Args:
        image: An image of mode L or RGB.
        height: Height of the result.
        width: Width of the result.

    Returns:
        The image, or the same one if it has the size already.

    Example:
        >>> from PIL import Image
        >>> fit_image(Image.new("L", (10, 20)), 28, 28).size
        (28, 28)
    """
    from PIL import Image

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
    # One crop per edge: an array of the whole image would copy it.
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
