"""Shared parts of the data sets of photographed objects: one image file per view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data.readers.image_files import read_image
from torchcaps.errors import ConfigError

# Bytes that one of the files may have.
MAX_BYTES = 1_000_000


def check_image(path: Path, file: DataFile) -> Tensor:
    """Read an image file; it is damaged if this fails."""
    return read_image(path, (1, 8, 8))


def read_views(source: Source, files: Sequence[DataFile], channels: int, image_size: int) -> tuple[Tensor, str]:
    """Return the images of these files, uint8 [N, C, image_size, image_size], and their folder."""
    if not 8 <= image_size <= 256:
        raise ConfigError(f"image_size: expected 8 to 256, got {image_size!r}")
    images = torch.empty(len(files), channels, image_size, image_size, dtype=torch.uint8)
    path = Path()
    for place, file in enumerate(files):
        path = obtain(file, source)
        images[place] = read_image(path, (channels, image_size, image_size))
    return images, str(path.parent)


def check_viewpoint(viewpoint: str | None, known: Sequence[str], split: str) -> None:
    """Raise ConfigError if the viewpoint protocol does not exist or does not fit the split."""
    if viewpoint is not None and viewpoint not in known:
        raise ConfigError(f"viewpoint: expected one of {', '.join(known)}, got {viewpoint!r}")
    if viewpoint is None and split in ("familiar", "novel"):
        raise ConfigError(f"viewpoint: expected one of {', '.join(known)} for the split '{split}', got None")
