"""ETH-80: ten objects of each of eight classes, photographed from 41 known views of the upper half sphere.

Leibe and Schiele 2003. The name of a file has the view: `car12-035-135.png` is car 12 at the polar angle 35 (0 is
straight from above) and the azimuth 135. `meta` has `instance` (0 to 9), `polar` and `azimuth` in degrees; the azimuth
of the view from above is -1.

The splits hold out objects: two of each class for `test` and one for `val`, by `fold`. With `viewpoint`, the training
split has half of the views: azimuths below 180 degrees, or polar angles of 66 degrees and more. `familiar` has the test
objects from these viewpoints, `novel` those from all others, `test` both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import torch

from torchcaps.data._sources import DataFile, Source
from torchcaps.data._view_images import MAX_BYTES, check_image, check_viewpoint, read_views
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry
from torchcaps.errors import ConfigError

CLASS_NAMES = ("apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato")
# Classes whose objects are not round, so that their azimuth can be seen.
TURNABLE = ("car", "cow", "cup", "dog", "horse")
FOLDS = 5
_CARS = (1, 2, 3, 5, 6, 7, 9, 11, 12, 14)
# Azimuths of the views at each polar angle, as the file names round them.
_QUARTERS = (0, 90, 180, 270)
_AZIMUTHS = {
    0: (0,),
    22: _QUARTERS,
    35: (45, 135, 225, 315),
    45: _QUARTERS,
    66: (27, 63, 117, 153, 207, 243, 297, 333),
    68: _QUARTERS,
    90: (0, 22, 45, 68, 90, 112, 135, 158, 180, 202, 225, 248, 270, 292, 315, 338),
}

Viewpoint = Literal["azimuth", "polar"]


class View(NamedTuple):
    """One image: class and object as indices, and the angles in degrees."""

    label: int
    instance: int
    polar: int
    azimuth: int

    @property
    def file(self) -> DataFile:
        """The file of the image."""
        name = CLASS_NAMES[self.label]
        stem = f"{name}{_CARS[self.instance] if name == 'car' else self.instance + 1}"
        return DataFile(f"{stem}/{stem}-{self.polar:03d}-{self.azimuth:03d}.png", max_bytes=MAX_BYTES)

    def is_familiar(self, viewpoint: str) -> bool:
        """Return whether the training split of a viewpoint protocol has this view."""
        return self.azimuth < 180 if viewpoint == "azimuth" else self.polar >= 66


VIEWS = tuple(
    View(label, instance, polar, azimuth)
    for label in range(len(CLASS_NAMES))
    for instance in range(10)
    for polar, azimuths in _AZIMUTHS.items()
    for azimuth in azimuths
)
SOURCE = Source(
    folder="eth80-cropped64",
    files=tuple(view.file for view in VIEWS),
    check=check_image,
    home="https://github.com/chenchkx/ETH-80",
)


def load_eth80(split: str, *, image_size: int = 64, fold: int = 0, viewpoint: Viewpoint | None = None) -> ImageDataset:
    """Load one split of ETH-80.

    Args:
        split: `train`, `val`, `test` or `train+val`; with `viewpoint` also `familiar` and `novel`.
        image_size: Side of the images; the files are scaled to it.
        fold: Which two objects of each class are the test objects, 0 to 4.
        viewpoint: `azimuth` or `polar` for a protocol of new viewpoints; the default trains on all views.

    Returns:
        The images, uint8 [N, 3, image_size, image_size], labels, and `meta`.

    Raises:
        ConfigError: If an option is out of range or does not fit the split.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_eth80("test")[0]  # doctest: +SKIP
    """
    check_viewpoint(viewpoint, ("azimuth", "polar"), split)
    if not 0 <= fold < FOLDS:
        raise ConfigError(f"fold: expected 0 to {FOLDS - 1}, got {fold!r}")
    views = [view for view in VIEWS if _belongs(view, split, fold, viewpoint)]
    images, folder = read_views(SOURCE, [view.file for view in views], 3, image_size)
    label, instance, polar, azimuth = torch.tensor(views).unbind(1)  # [N]
    meta = {"instance": instance, "polar": polar, "azimuth": azimuth.where(polar > 0, -1)}
    return InMemoryDataset("eth80", split, images, label, CLASS_NAMES, str(Path(folder).parent), meta)


def _belongs(view: View, split: str, fold: int, viewpoint: str | None) -> bool:
    tested = view.instance // 2 == fold
    held_out = view.instance == (2 * fold + 2) % 10
    if split in ("test", "familiar", "novel"):
        chosen = tested
    else:
        chosen = not tested and (split == "train+val" or held_out == (split == "val"))
    if viewpoint is None or split == "test":
        return chosen
    return chosen and view.is_familiar(viewpoint) != (split == "novel")


DATASETS.add(
    "eth80",
    DatasetEntry(
        description="80 objects of eight classes from 41 known views: 2,296 train, 328 val, 656 test, 3x64x64",
        source="Bastian Leibe, Bernt Schiele 2003: Analyzing Appearance and Contour Based Methods",
        licence="none stated; published for research",
        load=load_eth80,
        splits=(*SPLITS, "familiar", "novel"),
        sources=(SOURCE,),
    ),
)
