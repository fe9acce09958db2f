"""Rows of a Hugging Face data set as arrays; the `datasets` library is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torchcaps._extras import explain_missing
from torchcaps.errors import DataError, ShapeError


def hub_arrays(dataset: Any, image: str, label: str) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Return images [N, C, H, W], class indices [N] and class names, if any, of the rows of a data set."""
    if isinstance(dataset, Mapping):
        names = ", ".join(map(str, dataset))
        raise DataError(f"dataset: expected one split, got {len(dataset)} (choose one of {names})")
    columns = list(getattr(dataset, "column_names", None) or ())
    for column in (image, label):
        if columns and column not in columns:
            raise DataError(f"dataset: expected a column '{column}', got {', '.join(columns)}")
    arrays, labels = [], []
    for row in dataset:
        arrays.append(_pixels(row[image], len(arrays)))
        labels.append(row[label])
    if not arrays:
        raise DataError("dataset: expected at least one row, got 0")
    # One colour image makes all images colour images.
    channels = max(array.shape[0] for array in arrays)
    height, width = arrays[0].shape[1:]
    for number, array in enumerate(arrays):
        if array.shape[1:] != (height, width):
            raise ShapeError(
                f"dataset: expected images of one size, {height}x{width}, got {array.shape[1]}x{array.shape[2]} at "
                f"row {number} (resize them with `dataset.map`)"
            )
    images = np.stack([np.broadcast_to(array, (channels, height, width)) for array in arrays])
    numbers = np.asarray(labels)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise DataError(f"dataset: expected class indices in '{label}', got {numbers.dtype} {numbers.shape}")
    feature = (getattr(dataset, "features", None) or {}).get(label)
    return images, numbers, getattr(feature, "names", None)


def _pixels(image: Any, number: int) -> np.ndarray:
    """Return one image as bytes [C, H, W], of one or three channels."""
    with explain_missing():
        from PIL import Image

    if isinstance(image, Image.Image):
        image = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    given = pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] in (1, 3):
        pixels = pixels.transpose(2, 0, 1)
    elif pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.dtype.kind == "i" and pixels.size and 0 <= pixels.min() <= pixels.max() <= 255:
        # Lists of lists become wide integers.
        pixels = pixels.astype(np.uint8)
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or pixels.dtype != np.uint8:
        raise DataError(
            f"dataset: expected images, or bytes [H, W] or [H, W, 3], got {given.dtype} {given.shape} at row {number}"
        )
    return pixels
