"""A folder of images with one sub-folder per class.

    images/cat/*.jpg  images/dog/*.jpg          splits are made of each class, always the same
    images/train/cat/...  images/test/cat/...   or splits are folders; val (or valid) and test may be missing

A split without a folder is held out of the training images by a checksum of each file name, so that an image mostly
keeps its split when others are added.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.folder_files import ScannedFolder, scan_folder
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.image_files import MAX_THREADS, read_image
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry
from torchcaps.data.transforms import crop
from torchcaps.errors import ConfigError, DataError

# Megabytes that the images of all splits may take; more stay on disk.
MEMORY_MB = 1000
_MAX_LISTED = 20


class FolderDataset(ImageDataset):
    """One split of a folder of images that are decoded when they are needed.

    Args:
        name: Name of the data set.
        split: Name of the split.
        files: The image files.
        labels: Class index of each file, int64 [N].
        class_names: Name of each class.
        image_shape: Channels, height and width to which every image is scaled.
        origin: The folder.

    Example:
        >>> load_folder("train", "my/photos", memory_mb=0).in_memory  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        split: str,
        files: Sequence[Path],
        labels: Tensor,
        class_names: Sequence[str],
        image_shape: tuple[int, int, int],
        origin: str,
    ) -> None:
        super().__init__(name, split, class_names, origin)
        self._files = list(files)
        self._labels = labels
        self._shape = image_shape
        self._crop: int | None = None

    def __len__(self) -> int:
        return len(self._files)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self._shape if self._crop is None else (self._shape[0], self._crop, self._crop)

    @property
    def labels(self) -> Tensor:
        """Class indices of all images, int64 [N]."""
        return self._labels

    @property
    def meta(self) -> dict[str, Tensor]:
        """Empty: a folder holds images and labels."""
        return {}

    def read(self, indices: Tensor) -> Batch:
        """Return the images at these indices, int64 [n] in 0 to N - 1, in this order."""
        images = read_files([self._files[index] for index in indices.tolist()], self._shape)  # [n, C, H, W]
        return Batch(images if self._crop is None else crop(images, self._crop), self._labels[indices], None, {})

    def select(self, indices: Tensor) -> Self:
        """Return the data set of the images at these indices, int64 [n] in 0 to N - 1, in this order."""
        return self._copied(_files=[self._files[index] for index in indices.tolist()], _labels=self._labels[indices])

    def cropped(self, size: int) -> Self:
        """Return the data set with every image cropped to its centre, size x size."""
        crop(torch.empty(1, *self.image_shape), size)
        return self._copied(_crop=size)


def read_files(files: Sequence[Path], image_shape: tuple[int, int, int]) -> Tensor:
    """Read image files in several threads.

    Args:
        files: The files.
        image_shape: Channels, height and width of the result.

    Returns:
        The images, uint8 [n, C, H, W].
    """
    # An array: other threads cannot fill a tensor that was made in inference mode.
    pixels = np.empty((len(files), *image_shape), np.uint8)  # [n, C, H, W]

    def fill(place: int) -> None:
        pixels[place] = read_image(files[place], image_shape)

    # Pillow releases the interpreter lock while it decodes and scales.
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(fill, range(len(files))))
    return torch.from_numpy(pixels)


def load_folder(
    split: str,
    path: str | Path,
    *,
    image_size: int | Sequence[int] | None = None,
    channels: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    skip_bad: bool = False,
    memory_mb: int = MEMORY_MB,
    classes: Sequence[str] | None = None,
) -> ImageDataset:
    """Load one split of a folder of images.

    Images of other proportions are scaled to fit and get a border (`read_image`).

    Args:
        split: `train`, `val`, `test`, `train+val`, or `all` images.
        path: Folder with one sub-folder per class, or with such folders for each split.
        image_size: Height and width, or one number for both; the default is the size of most images, or a square if
            sizes are mixed, scaled down to at most 224 pixels.
        channels: 1 or 3; the default is 1 if all images are grey.
        val_fraction: Fraction of each class in the validation split if it has no folder; at least one image.
        test_fraction: Fraction of each class in the test split if it has no folder; at least one image.
        skip_bad: Whether to leave out files that cannot be read, with a warning, instead of stopping.
        memory_mb: Largest size of all images in memory, in megabytes; more stay on disk and are decoded when needed.
        classes: Names of all classes, if the folder may have only some of them, as a folder of test images does.

    Returns:
        The images, uint8 [N, C, H, W], and labels.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a folder has too few classes or images, or images are damaged.

    Example:
        >>> load_folder("train", "my/images")[0]  # doctest: +SKIP
    """
    if isinstance(memory_mb, bool) or not memory_mb >= 0:
        raise ConfigError(f"memory_mb: expected a number of at least 0, got {memory_mb!r}")
    root = Path(path).expanduser()
    fractions = {} if split == "all" else {"val": val_fraction, "test": test_fraction}
    scanned = scan_folder(root, fractions, skip_bad=skip_bad, classes=classes)
    report_bad(scanned, split, skip_bad=skip_bad)
    shape = scanned.image_shape(image_size, channels)
    class_names = tuple(scanned.splits["train"] if classes is None else classes)
    chosen = scanned.splits if split == "all" else split.split("+")
    files = [
        (file, k)
        for each in chosen
        for by_class in (scanned.splits[each],)
        for k, name in enumerate(class_names)
        for file in by_class.get(name, [])
    ]
    in_memory = scanned.count * shape[0] * shape[1] * shape[2] <= memory_mb * 1e6
    return dataset_of_files(scanned.root, split, files, class_names, shape, in_memory=in_memory)


def dataset_of_files(
    root: Path,
    split: str,
    files: Sequence[tuple[Path, int]],
    class_names: Sequence[str],
    image_shape: tuple[int, int, int],
    *,
    in_memory: bool,
) -> ImageDataset:
    """Return the data set of image files.

    Args:
        root: The folder, after which the data set is named.
        split: Name of the split.
        files: The files and their class indices.
        class_names: Name of each class.
        image_shape: Channels, height and width to which every image is scaled.
        in_memory: Whether to read all images now.

    Returns:
        The data set.
    """
    paths, labels = [file for file, _ in files], torch.tensor([label for _, label in files], dtype=torch.int64)
    name, origin = root.name or str(root), str(root)
    if not in_memory:
        return FolderDataset(name, split, paths, labels, class_names, image_shape, origin)
    return InMemoryDataset(name, split, read_files(paths, image_shape), labels, class_names, origin)


def report_bad(scanned: ScannedFolder, split: str, *, skip_bad: bool) -> None:
    """Raise an error with all files that cannot be read, or warn about those of a split that are left out.

    Args:
        scanned: The folder.
        split: The split.
        skip_bad: Whether to warn only.

    Raises:
        DataError: If there are such files and they are not left out.
    """
    bad = scanned.bad
    if not bad:
        return
    listed = list(bad.values())[:_MAX_LISTED]
    if len(bad) > _MAX_LISTED:
        listed.append(f"and {len(bad) - _MAX_LISTED} more")
    if not skip_bad and len(bad) == 1:
        raise DataError(f"{listed[0]} (--skip-bad, or skip_bad=true, leaves it out)")
    if not skip_bad:
        listed = "\n  ".join(listed)
        raise DataError(
            f"{scanned.root}: expected readable images, got {len(bad)} bad files (--skip-bad, or skip_bad=true, leaves "
            f"them out)\n  {listed}"
        )
    if split.startswith("train"):
        warnings.warn(f"left out {len(bad)} files that cannot be read: {', '.join(map(str, bad))}", stacklevel=3)


DATASETS.add(
    "folder",
    DatasetEntry(
        description="your own images, one sub-folder per class: common formats, any size",
        source="the folder given as path",
        licence="yours",
        load=load_folder,
        splits=(*SPLITS, "all"),
    ),
)
