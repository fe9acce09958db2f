"""A Hugging Face data set that is handed in; the `datasets` library itself is not needed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from torchcaps.errors import DataError, ShapeError


def hub_arrays(dataset: Any, image: str, label: str) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Images [N, C, H, W] and class numbers [N] of a data set's rows, and its names of classes where it has them."""
    if isinstance(dataset, Mapping):
        raise DataError(f"dataset: expected one split, got {len(dataset)} ({', '.join(map(str, dataset))}); choose one")
    columns = list(getattr(dataset, "column_names", None) or ())
    for column in (image, label):
        if columns and column not in columns:
            raise DataError(f"dataset: expected a column '{column}', got {', '.join(columns)}")
    pictures, labels = [], []
    for row in dataset:
        pictures.append(_pixels(row[image], len(pictures)))
        labels.append(row[label])
    if not pictures:
        raise DataError("dataset: expected at least one row, got none")
    # One coloured picture makes all of them coloured.
    channels = max(picture.shape[0] for picture in pictures)
    height, width = pictures[0].shape[1:]
    for number, picture in enumerate(pictures):
        if picture.shape[1:] != (height, width):
            raise ShapeError(
                f"dataset: expected images of one size, {height}x{width}, got {picture.shape[1]}x{picture.shape[2]} at "
                f"row {number}; resize them with `dataset.map`, or save them to a folder"
            )
    images = np.stack([np.broadcast_to(picture, (channels, height, width)) for picture in pictures])
    numbers = np.asarray(labels)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise DataError(f"dataset: expected class numbers in '{label}', got {numbers.dtype} {numbers.shape}")
    feature = (getattr(dataset, "features", None) or {}).get(label)
    return images, numbers, getattr(feature, "names", None)


def _pixels(image: Any, number: int) -> np.ndarray:
    """One picture as bytes [C, H, W], of one or three channels."""
    if isinstance(image, Image.Image):
        image = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    given = pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] in (1, 3):
        pixels = pixels.transpose(2, 0, 1)
    elif pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.dtype.kind == "i" and pixels.size and 0 <= pixels.min() <= pixels.max() <= 255:
        # Lists of lists arrive as large integers.
        pixels = pixels.astype(np.uint8)
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or pixels.dtype != np.uint8:
        raise DataError(
            f"dataset: expected pictures, or bytes [H, W] or [H, W, 3], got {given.dtype} {given.shape} at row {number}"
        )
    return pixels
