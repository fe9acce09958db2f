"""What is in a part of a data set, in numbers."""

from __future__ import annotations

from typing import Any

import torch

from torchcaps.data.image_data import ImageData


def describe(data: ImageData) -> dict[str, Any]:
    """The name, origin, sizes, counts per class and pixel values of some images, ready to print or to write as JSON.

    >>> from torchcaps.data import load_data
    >>> summary = describe(load_data("digits", "test"))
    >>> summary["images"], summary["image_shape"], summary["classes"]["7"]
    (1000, [1, 28, 28], 100)
    """
    counts = torch.bincount(data.labels, minlength=data.num_classes).tolist()  # [J]
    # Counting bytes needs no copy of the images as floats.
    seen = torch.bincount(data.images.flatten(), minlength=256)  # [256]
    values = seen.nonzero().flatten().tolist() or [0]
    total = max(1, int(seen.sum()))
    mean = float((seen * torch.arange(256)).sum() / total)
    return {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "images": len(data),
        "image_shape": list(data.image_shape),
        "classes": dict(zip(data.class_names, counts, strict=True)),
        "pixels": {"min": values[0], "max": values[-1], "mean": round(mean, 2)},
        "meta": {name: sorted(values.unique().tolist()) for name, values in data.meta.items()},
        "megabytes": round(data.images.nbytes / 1e6, 1),
    }
