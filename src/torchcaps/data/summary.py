"""Statistics of a data set."""

from __future__ import annotations

from typing import Any

import torch

from torchcaps.data.dataset import ImageDataset

# Images that are counted of a data set that is not in memory.
_MAX_COUNTED = 10_000


def describe(data: ImageDataset) -> dict[str, Any]:
    """Describe a data set: name, origin, sizes, images per class, range of pixels and of meta values.

    Args:
        data: A data set. Of one that is not in memory, at most 10,000 evenly spaced images are counted.

    Returns:
        A dictionary that can be written as JSON. `counted` is the number of images that were counted.

    Example:
        >>> from torchcaps.data import load_data
        >>> summary = describe(load_data("digits", "test"))
        >>> summary["images"], summary["image_shape"], summary["classes"]["7"]
        (1000, [1, 28, 28], 100)
    """
    sample = data if data.in_memory else data.evenly_spaced(_MAX_COUNTED)
    counts = torch.zeros(data.num_classes, dtype=torch.int64)  # [J]
    histogram = torch.zeros(256, dtype=torch.int64)  # [256]
    for batch in sample.batches(1024):
        counts += torch.bincount(batch.labels.flatten(), minlength=data.num_classes)
        # Counting bytes needs no copy of the images as floats.
        if batch.images.dtype == torch.uint8:
            histogram += torch.bincount(batch.images.flatten(), minlength=256)
    values = histogram.nonzero().flatten().tolist() or [0]
    total = max(1, int(histogram.sum()))
    pixels = [values[0], values[-1], float((histogram * torch.arange(256)).sum() / total)]
    if len(sample) and sample.batch([0]).images.is_floating_point():
        signals = sample.images
        pixels = [float(signals.min()), float(signals.max()), float(signals.mean())]
    return {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "images": len(data),
        "image_shape": list(data.image_shape),
        "counted": len(sample),
        "classes": dict(zip(data.class_names, counts.tolist(), strict=True)),
        "pixels": {"min": pixels[0], "max": pixels[1], "mean": round(pixels[2], 2)},
        "meta": {name: sorted(values.unique().tolist()) for name, values in sample.meta.items()},
        "megabytes": round(data.nbytes / 1e6, 1),
    }
