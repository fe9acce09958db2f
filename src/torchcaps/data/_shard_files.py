"""The files of a sharded data set: tar archives whose headers say where each image lies, and the index beside them.

Archives are never unpacked, and what is odd about one is a DataError that names it.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.errors import DataError

INDEX = "index.json"
# No image of a size that networks are trained on takes as much.
MAX_MEMBER = 64_000_000


@dataclass(frozen=True)
class Shard:
    """A tar archive, how many images it holds, and how large it is."""

    path: Path
    count: int
    size: int


def read_table(shard: Shard, num_classes: int) -> np.ndarray:
    """The offset, size and label of each image of a shard, [n, 3], from its headers; anything odd is a DataError."""
    labels: dict[str, int] = {}
    images: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(shard.path, "r:") as archive:
            for member in archive:
                key, _, kind = member.name.partition(".")
                if not member.isreg() or not key or "/" in member.name or "\\" in member.name:
                    raise DataError(f"{shard.path}: expected plain files alone, got the member '{member.name}'")
                if member.size > MAX_MEMBER:
                    raise DataError(
                        f"{shard.path}: expected members of at most {MAX_MEMBER:,} bytes, got '{member.name}' with "
                        f"{member.size:,}"
                    )
                if kind == "cls":
                    labels[key] = int(_content(archive, member))
                else:
                    images[key] = (member.offset_data, member.size)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{shard.path}: expected a whole tar archive, got {error}; make the shards again") from None
    if labels.keys() != images.keys() or len(images) != shard.count:
        raise DataError(
            f"{shard.path}: expected {shard.count} images with a class number each, got {len(images)} images and "
            f"{len(labels)} class numbers; make the shards again"
        )
    table = np.array([(*place, labels[key]) for key, place in images.items()], np.int64).reshape(-1, 3)
    if len(table) and not 0 <= table[:, 2].min() <= table[:, 2].max() < num_classes:
        raise DataError(f"{shard.path}: expected class numbers from 0 to {num_classes - 1}, got others")
    return table


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder of shards, checked; nothing in it may lead out of the folder."""
    file = folder / INDEX
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
        entries = [entry for part in index["parts"].values() for entry in part]
        sound = all(
            Path(entry["file"]).name == entry["file"] and min(entry["count"], entry["bytes"]) >= 0 for entry in entries
        )
        channels, height, width = map(int, index["image_shape"])
        sound = sound and channels in (1, 3) and min(height, width) > 0 and all(map(str, index["class_names"]))
    except FileNotFoundError:
        raise DataError(f"{file}: expected the index of a folder of shards, got no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: expected the index of a folder of shards, got {error!r}") from None
    if not sound:
        raise DataError(f"{file}: expected names of files beside it, counts and a shape, got something else")
    return index


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read(32)
