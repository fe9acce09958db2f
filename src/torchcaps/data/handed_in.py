"""Images that are in memory already, under a name that recipes, `load_data` and reports can use."""

from __future__ import annotations

from dataclasses import replace

import torch

from torchcaps.data._split import choose_part
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.errors import DataError

_SEED = 0


def hand_in(name: str, train: ImageData, test: ImageData, *, val: ImageData | None = None) -> None:
    """Give images a name for as long as this process runs: `load_data(name)` and a recipe's `data.name` then know them.

    Without `val`, a tenth of the training images is held out for validation, in the proportions of the classes.

    >>> import numpy as np
    >>> from torchcaps.data import load_data
    >>> images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2
    >>> hand_in("stripes", ImageData.from_arrays(images, labels), ImageData.from_arrays(images, labels))
    >>> len(load_data("stripes", "train")), len(load_data("stripes", "val"))
    (36, 4)
    """
    parts = {"train": train, "test": test} | ({} if val is None else {"val": val})
    for part, data in parts.items():
        if (data.class_names, data.image_shape) != (train.class_names, train.image_shape):
            raise DataError(
                f"{part}: expected images {train.image_shape} of {train.num_classes} classes like those for training, "
                f"got {data.image_shape} of {data.num_classes}, or other class names"
            )

    def load(split: str) -> ImageData:
        if split == "test" or (split == "val" and val is not None):
            found = parts[split]
        elif val is None:
            places = choose_part(train.labels, split, len(train) // 10, train.num_classes, _SEED)
            found = train if isinstance(places, slice) else train.subset(places)
        else:
            found = train if split == "train" else _joined(train, val)
        return replace(found, name=name, split=split)

    DATASETS.add(name, Dataset("images handed in by this process", train.origin, "yours", load))


def _joined(first: ImageData, second: ImageData) -> ImageData:
    return replace(
        first,
        images=torch.cat([first.images, second.images]),
        labels=torch.cat([first.labels, second.labels]),
        # Only what is known of both parts.
        meta={key: torch.cat([values, second.meta[key]]) for key, values in first.meta.items() if key in second.meta},
    )
