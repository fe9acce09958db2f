"""A folder of the user's own images, one sub-folder per class.

    pictures/cat/*.jpg  pictures/dog/*.jpg          the parts are drawn from each class, always the same
    pictures/train/cat/...  pictures/test/cat/...   or the parts are there already; val and test may be missing

Where there is no `val` or `test` folder, the part is drawn from the training images by a checksum of each file's name,
so that a picture keeps its part when others are added.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import ImageData
from torchcaps.data.image_files import SUFFIXES, probe_image, read_image
from torchcaps.errors import ConfigError, DataError

# Photographs of thousands of pixels are brought down to this where no size is asked for.
MAX_SIDE = 64
_PARTS = ("train", "val", "test")

Files = dict[str, list[Path]]


def load_folder(
    split: str,
    path: str | Path,
    *,
    image_size: int | Sequence[int] | None = None,
    channels: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> ImageData:
    """One part of a folder of images.

    `image_size` is (height, width), or one number for both; without it the most common size of all images, brought
    down to at most 64 pixels. `channels` is 1 or 3; without it 1 if all images are grey. Images of other
    proportions keep theirs and get a border (`read_image`). Of each class, `val_fraction` and `test_fraction` of
    the images, and at least one, make a part that has no folder of its own.
    """
    root = Path(path).expanduser()
    parts = find_images(root, {"val": val_fraction, "test": test_fraction})
    shape = image_shape_of(parts, image_size, channels)
    class_names = tuple(parts["train"])
    wanted = [parts[part] for part in split.split("+")]
    files = [(file, k) for part in wanted for k, name in enumerate(class_names) for file in part.get(name, [])]
    # Pillow lets go of the interpreter while it decodes and scales.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(lambda item: read_image(item[0], shape), files))
    return ImageData(
        name=root.name or str(root),
        split=split,
        images=torch.stack(images),  # [N, C, H, W]
        labels=torch.tensor([label for _, label in files]),  # [N]
        class_names=class_names,
        origin=str(root),
    )


def find_images(root: Path, fractions: dict[str, float]) -> dict[str, Files]:
    """The image files of `train`, `val` and `test`, by class."""
    for part, fraction in fractions.items():
        if not 0 < fraction < 0.5:
            raise ConfigError(f"{part}_fraction: expected a number above 0 and below 0.5, got {fraction!r}")
    if not root.is_dir():
        raise DataError(f"{root}: expected a folder of images with one sub-folder per class, got no such folder")
    if not (root / "train").is_dir():
        return _draw_parts(_class_files(root), root, fractions)
    parts = {part: _class_files(root / part) for part in _PARTS if (root / part).is_dir()}
    for part, files in parts.items():
        for name in files:
            if name not in parts["train"]:
                raise DataError(f"{root / part / name}: expected a class of {root / 'train'}, got a new one")
    missing = {part: fraction for part, fraction in fractions.items() if part not in parts}
    return {**parts, **_draw_parts(parts["train"], root / "train", missing)}


def _class_files(folder: Path) -> Files:
    classes = sorted(sub for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    if not classes and not any(map(_is_image, folder.iterdir())):
        raise DataError(f"{folder}: expected images in one sub-folder per class, got a folder without any")
    if len(classes) < 2:
        raise DataError(
            f"{folder}: expected at least two sub-folders, one per class, got {len(classes)}; "
            f"put the images of each class into a sub-folder of its own"
        )
    files = {sub.name: sorted(filter(_is_image, sub.rglob("*"))) for sub in classes}
    for name, found in files.items():
        if not found:
            raise DataError(f"{folder / name}: expected images of class '{name}', got none; add some or remove it")
    return files


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _draw_parts(files: Files, folder: Path, fractions: dict[str, float]) -> dict[str, Files]:
    parts: dict[str, Files] = {part: {} for part in ("train", *fractions)}
    for name, found in files.items():
        if len(found) <= len(fractions):
            raise DataError(
                f"{folder / name}: expected at least {len(fractions) + 1} images, one for each of "
                f"{', '.join(parts)}, got {len(found)}"
            )
        order = sorted(found, key=lambda file: draw_key(file.relative_to(folder)))
        start = 0
        for part, fraction in fractions.items():
            count = max(1, round(fraction * len(found)))
            parts[part][name] = sorted(order[start : start + count])
            start += count
        parts["train"][name] = sorted(order[start:])
    return parts


def draw_key(name: Path) -> bytes:
    """What images are drawn and mixed by: a checksum of the name, the same on every machine."""
    return hashlib.sha256(name.as_posix().encode()).digest()


def image_shape_of(
    parts: dict[str, Files], image_size: int | Sequence[int] | None, channels: int | None
) -> tuple[int, int, int]:
    """The shape that all images of a folder are brought to: what was asked for, else the most common one."""
    if channels not in (None, 1, 3):
        raise ConfigError(f"channels: expected 1 or 3, got {channels!r}")
    if image_size is not None and channels is not None:
        return channels, *_sides(image_size)
    # Over all parts, so that training and test images come out in the same shape.
    shapes = [probe_image(file) for files in parts.values() for found in files.values() for file in found]
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
    Dataset(
        description="your own images, one sub-folder per class: any common file, any size",
        source="the folder given as path",
        licence="yours",
        load=load_folder,
    ),
)
