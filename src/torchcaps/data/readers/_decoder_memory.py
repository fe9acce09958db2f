"""Memory that the decoder of an image takes beside the decoded image, from what the file announces.

The strips or tiles of a TIFF file may be far larger than its image. A JPEG 2000 file names the size of its blocks, each
of which takes some hundred bytes, and may name the size of the image twice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from torchcaps.data.readers._limited_io import CHUNK

if TYPE_CHECKING:
    from PIL import Image

# Bytes per pixel. A progressive JPEG stores 6 bytes of coefficients, but the decoded image is then a fraction of its
# size.
_PER_PIXEL = {"JPEG": 2, "MPO": 2, "GIF": 8, "WEBP": 20, "AVIF": 20, "JPEG2000": 20}
# Tags of TIFF, and bytes of a pixel of a strip or tile: at most four channels of 16 bits.
_ROWS_PER_STRIP, _TILE_WIDTH, _TILE_HEIGHT, _TIFF_PIXEL = 278, 322, 323, 8
# Bytes of a value of one channel, of a block with its precinct, of a tile, and of a tile for each channel.
_SAMPLE, _BLOCK, _TILE, _TILE_CHANNEL = 6, 600, 6_000, 1_200
# The segments of a JPEG 2000 file for the image size, the coding style, and the coding style of a channel: a marker,
# and at most this number of bytes that matter.
_SEGMENT = 48
_SEGMENTS = re.compile(rb"\xff([\x51\x52\x53])(?=(.{%d}))" % _SEGMENT, re.DOTALL)
# Places of the style and of the number of levels. The number of a channel has one or two bytes.
_STYLES = {b"\x52": ((2, 7),), b"\x53": ((3, 4), (4, 5))}


def per_pixel(image: Image.Image) -> int:
    """Return the bytes per pixel of an image's decoder, as far as the format determines them."""
    return _PER_PIXEL.get(image.format or "", 1)


def decoder_memory(image: Image.Image, file: IO[bytes]) -> int:
    """Return the bytes that the decoder of an open image takes beside the decoded image; `file` keeps its position."""
    usual = image.width * image.height * per_pixel(image)
    if image.format == "TIFF":
        return usual + _TIFF_PIXEL * _chunk_pixels(image)
    return max(usual, _jpeg2000_memory(file)) if image.format == "JPEG2000" else usual


def _chunk_pixels(image: Image.Image) -> int:
    """Return the number of pixels of a strip or tile of a TIFF file."""
    tags = getattr(image, "tag_v2", {})
    width, height, rows = (tags.get(tag) for tag in (_TILE_WIDTH, _TILE_HEIGHT, _ROWS_PER_STRIP))
    if isinstance(width, int) and isinstance(height, int):
        return width * height
    return image.width * (min(rows, image.height) if isinstance(rows, int) else image.height)


def _jpeg2000_memory(file: IO[bytes]) -> int:
    """Return the memory of the values, blocks and tiles of a JPEG 2000 file."""
    sizes: list[tuple[int, int, int]] = []
    blocks: list[int] = []
    for kind, content in _segments(file):
        if kind == b"\x51":
            sizes += _sizes(content)
        else:
            blocks += [size for places in _STYLES[kind] for size in _block_sizes(content, *places)]
    smallest = min(blocks, default=1)
    return max(
        (
            pixels * channels * (_SAMPLE + _BLOCK / smallest) + tiles * (_TILE + _TILE_CHANNEL * channels)
            for pixels, channels, tiles in sizes
        ),
        default=0,
    ).__ceil__()


def _segments(file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the content of everything in a file that looks like a segment.

    Each tile may have segments of its own, so that the whole file is searched. Other bytes look like one by accident
    only if their length fits, and can only make the estimate larger.
    """
    before, rest = file.tell(), b""
    file.seek(0)
    while chunk := file.read(CHUNK):
        text = rest + chunk
        yield from _SEGMENTS.findall(text)
        rest = text[-_SEGMENT - 1 :]
    yield from _SEGMENTS.findall(rest + bytes(_SEGMENT))
    file.seek(before)


def _sizes(content: bytes) -> list[tuple[int, int, int]]:
    """Return pixels, channels and tiles of an image size; nothing for other bytes."""
    numbers = struct.unpack_from(">HHIIIIIIIIH", content)
    length, _, right, bottom, left, top, width, height, first, upper, channels = numbers
    if length != 38 + 3 * channels or not width or not height:
        return []
    tiles = -(-(right - first) // width) * -(-(bottom - upper) // height)
    return [((right - left) * (bottom - top), channels, tiles)]


def _block_sizes(content: bytes, style: int, levels: int) -> list[int]:
    """Return the pixels of the smallest block of a coding style, which precincts divide; nothing for other bytes."""
    (length,) = struct.unpack_from(">H", content)
    count, own = content[levels], content[style] & 1
    if count > 32 or length != levels + 5 + own * (count + 1):
        return []
    precincts = content[levels + 5 : levels + 6 + count] if own else b"\xff"
    sides = [(each & 15, each >> 4) for each in precincts]
    # Above the lowest level the bands have half the resolution.
    sides[1:] = [(max(0, wide - 1), max(0, high - 1)) for wide, high in sides[1:]]
    wide, high = ((content[levels + place] & 15) + 2 for place in (1, 2))
    return [min(2 ** (min(wide, across) + min(high, down)) for across, down in sides)]
