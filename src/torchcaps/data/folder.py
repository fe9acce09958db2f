"""A folder of images with one sub-folder per class.

    images/cat/*.jpg  images/dog/*.jpg          splits are made of each class, always the same
    images/train/cat/...  images/test/cat/...   or splits are folders; val and test may be missing

A split without a folder is held out of the training images by a checksum of each file name, so that an image mostly
keeps its split when others are added.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.image_files import MAX_THREADS, SUFFIXES, probe_image, read_image
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import ConfigError, DataError

# Larger images are scaled down to this side if no size is given.
MAX_SIDE = 64
_SPLITS = ("train", "val", "test")

Files = dict[str, list[Path]]


def load_folder(
    split: str,
    path: str | Path,
    *,
    image_size: int | Sequence[int] | None = None,
    channels: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> ImageDataset:
    """Load one split of a folder of images.

    Images of other proportions are scaled to fit and get a border (`read_image`).

    Args:
        split: `train`, `val`, `test` or `train+val`.
        path: Folder with one sub-folder per class, or with such folders for each split.
        image_size: Height and width, or one number for both; the default is the most common size, scaled down to at
            most 64 pixels.
        channels: 1 or 3; the default is 1 if all images are grey.
        val_fraction: Fraction of each class in the validation split if it has no folder; at least one image.
        test_fraction: Fraction of each class in the test split if it has no folder; at least one image.

    Returns:
        The images, uint8 [N, C, H, W], and labels.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If a folder has too few classes or images, or an image is damaged.

    Example:
        >>> load_folder("train", "my/images")[0]  # doctest: +SKIP
    """
    root = Path(path).expanduser()
    splits = find_images(root, {"val": val_fraction, "test": test_fraction})
    shape = image_shape_of(splits, image_size, channels)
    class_names = tuple(splits["train"])
    classes = [splits[name] for name in split.split("+")]
    files = [(file, k) for by_class in classes for k, name in enumerate(class_names) for file in by_class.get(name, [])]
    # Pillow releases the interpreter lock while it decodes and scales.
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        images = list(pool.map(lambda item: read_image(item[0], shape), files))
    return InMemoryDataset(
        name=root.name or str(root),
        split=split,
        images=torch.stack(images),  # [N, C, H, W]
        labels=torch.tensor([label for _, label in files]),  # [N]
        class_names=class_names,
        origin=str(root),
    )


def find_images(root: Path, fractions: dict[str, float]) -> dict[str, Files]:
    """Return the image files of `train`, `val` and `test`, by class."""
    for split, fraction in fractions.items():
        if not 0 < fraction < 0.5:
            raise ConfigError(f"{split}_fraction: expected a number above 0 and below 0.5, got {fraction!r}")
    if not root.is_dir():
        raise DataError(f"{root}: expected a folder of images, got no such folder")
    if not (root / "train").is_dir():
        return _hold_out(_class_files(root), root, fractions)
    splits = {split: _class_files(root / split) for split in _SPLITS if (root / split).is_dir()}
    for split, files in splits.items():
        for name in files:
            if name not in splits["train"]:
                raise DataError(f"{root / split / name}: expected a class of {root / 'train'}, got a new one")
    missing = {split: fraction for split, fraction in fractions.items() if split not in splits}
    return {**splits, **_hold_out(splits["train"], root / "train", missing)}


def _class_files(folder: Path) -> Files:
    classes = sorted(sub for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    if not classes and not any(map(_is_image, folder.iterdir())):
        raise DataError(f"{folder}: expected images in one sub-folder per class, got none")
    if len(classes) < 2:
        raise DataError(
            f"{folder}: expected at least two sub-folders, got {len(classes)} (put the images of each class into one)"
        )
    files = {sub.name: sorted(filter(_is_image, sub.rglob("*"))) for sub in classes}
    for name, found in files.items():
        if not found:
            raise DataError(
                f"{folder / name}: expected images of class '{name}', got none (add some or remove the folder)"
            )
    return files


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _hold_out(files: Files, folder: Path, fractions: dict[str, float]) -> dict[str, Files]:
    splits: dict[str, Files] = {split: {} for split in ("train", *fractions)}
    for name, found in files.items():
        if len(found) <= len(fractions):
            raise DataError(
                f"{folder / name}: expected at least {len(fractions) + 1} images, one for each of "
                f"{', '.join(splits)}, got {len(found)}"
            )
        order = sorted(found, key=lambda file: shuffle_key(file.relative_to(folder)))
        start = 0
        for split, fraction in fractions.items():
            count = max(1, round(fraction * len(found)))
            splits[split][name] = sorted(order[start : start + count])
            start += count
        splits["train"][name] = sorted(order[start:])
    return splits


def shuffle_key(name: Path) -> bytes:
    """Return a checksum of the name, by which images are shuffled in the same way on every machine."""
    return hashlib.sha256(name.as_posix().encode()).digest()


def image_shape_of(
    splits: dict[str, Files], image_size: int | Sequence[int] | None, channels: int | None
) -> tuple[int, int, int]:
    """Return the shape to which all images of a folder are scaled: the given one, else the most common one."""
    if channels not in (None, 1, 3):
        raise ConfigError(f"channels: expected 1 or 3, got {channels!r}")
    if image_size is not None and channels is not None:
        return channels, *_sides(image_size)
    # Over all splits, so that training and test images have the same shape.
    shapes = [probe_image(file) for files in splits.values() for found in files.values() for file in found]
    depth = channels or max(depth for depth, _, _ in shapes)
    if image_size is not None:
        return depth, *_sides(image_size)
    (height, width), _ = Counter((height, width) for _, height, width in shapes).most_common(1)[0]
    factor = min(1, MAX_SIDE / max(height, width))
    return depth, max(1, round(height * factor)), max(1, round(width * factor))


def _sides(image_size: int | Sequence[int]) -> tuple[int, int]:
    sides = [image_size] * 2 if isinstance(image_size, int) else list(image_size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ConfigError(f"image_size: expected (height, width), got {image_size!r}")
    return sides[0], sides[1]


DATASETS.add(
    "folder",
    DatasetEntry(
        description="your own images, one sub-folder per class: common formats, any size",
        source="the folder given as path",
        licence="yours",
        load=load_folder,
    ),
)
