"""The files of a sharded data set: tar archives whose headers give the offset of each image, and their index.

Archives are never unpacked.
"""

from __future__ import annotations

import json
import tarfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from torchcaps._files import open_regular, read_bounded
from torchcaps.data.readers._limited_io import CappedReader
from torchcaps.data.readers.image_files import open_image, reserved
from torchcaps.errors import DataError

INDEX = "index.json"
# Largest size of an image file in a shard, and of its pixels.
MAX_MEMBER, MAX_PIXELS = 64_000_000, 4_000_000
# Memory per pixel of the decoded image and its conversion.
DECODED_BYTES = 8


@dataclass(frozen=True)
class Shard:
    """Path, number of images and size in bytes of a tar archive."""

    path: Path
    count: int
    size: int


def read_table(shard: Shard, num_classes: int) -> np.ndarray:
    """Read offset, size and label of each image of a shard, [n, 3], from its headers."""
    labels: dict[str, int] = {}
    images: dict[str, tuple[int, int]] = {}
    try:
        with (
            open_regular(shard.path) as file,
            tarfile.open(fileobj=cast(BinaryIO, CappedReader(file)), mode="r:") as archive,
        ):
            for member in archive:
                key, _, kind = member.name.partition(".")
                if not member.isreg() or not key or "/" in member.name or "\\" in member.name:
                    raise DataError(f"{shard.path}: expected regular files in no folder, got '{member.name}'")
                if member.size > MAX_MEMBER:
                    raise DataError(
                        f"{shard.path}: expected members of at most {MAX_MEMBER:,} bytes, got {member.size:,} in "
                        f"'{member.name}'"
                    )
                if kind == "cls":
                    labels[key] = int(_content(archive, member))
                else:
                    images[key] = (member.offset_data, member.size)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{shard.path}: expected a tar archive, got {error} (write the shards again)") from None
    if labels.keys() != images.keys() or len(images) != shard.count:
        raise DataError(
            f"{shard.path}: expected {shard.count} images with a label each, got {len(images)} images and "
            f"{len(labels)} labels (write the shards again)"
        )
    table = np.array([(*place, labels[key]) for key, place in images.items()], np.int64).reshape(-1, 3)
    if len(table) and not 0 <= table[:, 2].min() <= table[:, 2].max() < num_classes:
        low, high = table[:, 2].min(), table[:, 2].max()
        raise DataError(f"{shard.path}: expected labels from 0 to {num_classes - 1}, got {low} to {high}")
    return table


def read_index(folder: Path) -> dict[str, Any]:
    """Read and check the index of a folder of shards; its files are inside the folder."""
    file = folder / INDEX
    try:
        index = json.loads(read_bounded(file).decode("utf-8"))
        entries = [entry for split in index["splits"].values() for entry in split]
        sound = all(
            Path(entry["file"]).name == entry["file"] and min(entry["count"], entry["bytes"]) >= 0 for entry in entries
        )
        channels, height, width = map(int, index["image_shape"])
        sound = (
            sound
            and channels in (1, 3)
            and min(height, width) > 0
            and height * width <= MAX_PIXELS
            and all(map(str, index["class_names"]))
        )
    except FileNotFoundError:
        raise DataError(f"{file}: expected the index of a folder of shards, but there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"{file}: expected the index of a folder of shards, got {error!r}") from None
    if not sound:
        raise DataError(
            f"{file}: expected file names without folders, counts, and a shape of at most {MAX_PIXELS:,} pixels, got "
            "others"
        )
    return index


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read(32)


def read_member(path: Path, offset: int, size: int, image_shape: tuple[int, int, int]) -> np.ndarray:
    """Read one image of a shard, uint8 [C, H, W].

    Args:
        path: The shard.
        offset: Start of the image file in the shard.
        size: Bytes of the image file.
        image_shape: Channels, height and width of the result.

    Returns:
        The image.
    """
    channels, height, width = image_shape
    try:
        with open_regular(path) as file:
            file.seek(offset)
            content = file.read(size)
        with ExitStack() as reservation, open_image(content, MAX_PIXELS) as (image, memory):
            if image.size != (width, height):
                raise ValueError(f"{image.height}x{image.width} pixels, expected {height}x{width}")
            reservation.enter_context(reserved(DECODED_BYTES * height * width + memory))
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(height, width, channels)
    # Pillow's decoders raise many kinds of errors for damaged files.
    except Exception as error:
        raise DataError(f"{path}: expected an image at byte {offset}, got {error} (write the shards again)") from None
    return pixels.transpose(2, 0, 1)  # [C, H, W]
