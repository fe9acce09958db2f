"""COIL-20: twenty objects on a turntable, photographed every five degrees.

Nene, Nayar, Murase 1996, the processed set: `obj1__0.png` is object 1 at 0 degrees, `obj1__71.png` at 355. Each object
is a class. `meta` has `azimuth` in degrees.

The splits hold out views: `test` has every second view, `val` every fifth of the others. With `viewpoint="azimuth"`,
the training split has only views of the front half, up to 90 degrees from the first; `familiar` has the test views of
this half, `novel` all views of the other one, `test` both.
"""

from __future__ import annotations

from typing import Literal

import torch

from torchcaps.data._sources import DataFile, Source
from torchcaps.data._view_images import MAX_BYTES, check_image, check_viewpoint, read_views
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry

OBJECTS, VIEWS, STEP = 20, 72, 5
CLASS_NAMES = tuple(f"object {number}" for number in range(1, OBJECTS + 1))

SOURCE = Source(
    folder="coil-20-proc",
    files=tuple(
        DataFile(f"obj{item}__{view}.png", max_bytes=MAX_BYTES)
        for item in range(1, OBJECTS + 1)
        for view in range(VIEWS)
    ),
    check=check_image,
    home="https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
)


def load_coil20(split: str, *, image_size: int = 32, viewpoint: Literal["azimuth"] | None = None) -> ImageDataset:
    """Load one split of COIL-20.

    Args:
        split: `train`, `val`, `test` or `train+val`; with `viewpoint` also `familiar` and `novel`.
        image_size: Side of the images; the files of 128x128 are scaled to it.
        viewpoint: `azimuth` for the protocol of new viewpoints; the default trains on views all around.

    Returns:
        The images, uint8 [N, 1, image_size, image_size], labels, and `meta`.

    Raises:
        ConfigError: If an option is out of range or does not fit the split.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_coil20("test")[0]  # doctest: +SKIP
    """
    check_viewpoint(viewpoint, ("azimuth",), split)
    chosen = [(item, view) for item in range(OBJECTS) for view in range(VIEWS) if _belongs(view, split, viewpoint)]
    images, folder = read_views(SOURCE, [SOURCE.files[item * VIEWS + view] for item, view in chosen], 1, image_size)
    labels, views = torch.tensor(chosen).unbind(1)  # [N]
    return InMemoryDataset("coil20", split, images, labels, CLASS_NAMES, folder, {"azimuth": STEP * views})


def _belongs(view: int, split: str, viewpoint: str | None) -> bool:
    front = min(view, VIEWS - view) * STEP <= 90
    tested, held_out = view % 2 == 1, view % 10 == 4
    if viewpoint is not None:
        if split == "novel":
            return not front
        if split == "test":
            return tested or not front
        if not front:
            return False
    if split in ("test", "familiar"):
        return tested
    return not tested and (split == "train+val" or held_out == (split == "val"))


DATASETS.add(
    "coil20",
    DatasetEntry(
        description="20 objects turned in steps of 5 degrees: 580 train, 140 val, 720 test, grey, 32x32 of 128x128",
        source="Sameer Nene, Shree Nayar, Hiroshi Murase 1996: Columbia Object Image Library (COIL-20)",
        licence="non-commercial research",
        load=load_coil20,
        splits=(*SPLITS, "familiar", "novel"),
        sources=(SOURCE,),
    ),
)
