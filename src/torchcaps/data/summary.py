"""What is in a part of a data set, in numbers."""

from __future__ import annotations

from typing import Any

import torch

from torchcaps.data.image_data import ImageData

# Of data that are not in memory, so many are looked at.
_ENOUGH = 10_000


def describe(data: ImageData) -> dict[str, Any]:
    """The name, origin, sizes, counts per class and pixel values of some images, ready to print or to write as JSON.

    `counted` is how many were looked at: all that are in memory, and some of those that are not.

    >>> from torchcaps.data import load_data
    >>> summary = describe(load_data("digits", "test"))
    >>> summary["images"], summary["image_shape"], summary["classes"]["7"]
    (1000, [1, 28, 28], 100)
    """
    part = data if type(data) is ImageData else data.spread(_ENOUGH)
    counts = torch.zeros(data.num_classes, dtype=torch.int64)  # [J]
    seen = torch.zeros(256, dtype=torch.int64)  # [256]
    for batch in part.batches(1024):
        counts += torch.bincount(batch.labels.flatten(), minlength=data.num_classes)
        # Counting bytes needs no copy of the images as floats.
        seen += torch.bincount(batch.images.flatten(), minlength=256)
    values = seen.nonzero().flatten().tolist() or [0]
    total = max(1, int(seen.sum()))
    mean = float((seen * torch.arange(256)).sum() / total)
    return {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "images": len(data),
        "image_shape": list(data.image_shape),
        "counted": len(part),
        "classes": dict(zip(data.class_names, counts.tolist(), strict=True)),
        "pixels": {"min": values[0], "max": values[-1], "mean": round(mean, 2)},
        "meta": {name: sorted(values.unique().tolist()) for name, values in part.meta.items()},
        "megabytes": round(data.images.nbytes / 1e6, 1) if type(data) is ImageData else 0.0,
    }
