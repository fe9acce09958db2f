"""The files of a folder of images: which there are, which can be read, and the splits they belong to."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torchcaps.data.readers.image_files import MAX_THREADS, SUFFIXES, probe_image, read_image
from torchcaps.errors import ConfigError, DataError

# Larger images are scaled down to this side if no size is given.
MAX_SIDE = 224
# Names of the folder of each split.
_FOLDERS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}

Files = dict[str, list[Path]]


@dataclass(frozen=True)
class ScannedFolder:
    """The images of a folder.

    Attributes:
        root: The folder.
        splits: The readable files of `train`, `val` and `test`, by class.
        held_out: Splits that have no folder and were held out of the training images.
        shapes: Channels, height and width of each readable file.
        bad: Files that cannot be read, and why.
        other: Number of files that are no images.
    """

    root: Path
    splits: dict[str, Files]
    held_out: tuple[str, ...]
    shapes: dict[Path, tuple[int, int, int]]
    bad: dict[Path, str]
    other: int

    @property
    def count(self) -> int:
        """Number of readable images."""
        return len(self.shapes)

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        """Number of images of each height and width."""
        return Counter((height, width) for _, height, width in self.shapes.values())

    def image_shape(self, image_size: int | Sequence[int] | None, channels: int | None) -> tuple[int, int, int]:
        """Return the shape to which all images are scaled: the given one, else one that fits.

        It is the size of most images, or a square of their median larger side if no size is that of most, scaled down
        to at most 224 pixels. Over all splits, so that training and test images have the same shape.

        Args:
            image_size: Height and width, or one number for both.
            channels: 1 or 3.

        Returns:
            Channels, height and width.

        Raises:
            ConfigError: If a value is out of range.
        """
        if channels not in (None, 1, 3):
            raise ConfigError(f"channels: expected 1 or 3, got {channels!r}")
        depth = channels or max(depth for depth, _, _ in self.shapes.values())
        if image_size is not None:
            return depth, *_sides(image_size)
        (height, width), count = self.sizes.most_common(1)[0]
        if 2 * count <= self.count:
            larger = sorted(max(height, width) for _, height, width in self.shapes.values())
            height = width = _round_side(larger[len(larger) // 2])
        factor = min(1, MAX_SIDE / max(height, width))
        return depth, max(1, round(height * factor)), max(1, round(width * factor))


def scan_folder(
    root: Path, fractions: dict[str, float], *, skip_bad: bool = False, classes: Sequence[str] | None = None
) -> ScannedFolder:
    """Find the images of a folder and read each once.

    Args:
        root: The folder.
        fractions: Fraction of each class in `val` and `test` where they have no folder.
        skip_bad: Whether files that cannot be read are left out of the splits.
        classes: Names of the classes that there may be; by default those of the training images.

    Returns:
        The images.

    Raises:
        ConfigError: If a fraction is out of range.
        DataError: If the folder has too few classes or images.
    """
    for split, fraction in fractions.items():
        if not 0 < fraction < 0.5:
            raise ConfigError(f"{split}_fraction: expected a number above 0 and below 0.5, got {fraction!r}")
    if not root.is_dir():
        raise DataError(f"{root}: expected a folder of images, but there is no such folder")
    folders = _split_folders(root)
    found = {split: _class_files(folder, least=2 if classes is None else 1) for split, folder in folders.items()}
    known = list(found["train"]) if classes is None else list(classes)
    for split, files in found.items():
        for name in files:
            if name not in known:
                raise DataError(f"{folders[split] / name}: expected a class of {', '.join(known)}, got a new one")
    every = [file for files in found.values() for each in files.values() for file in each]
    shapes, bad = _check_files(every)
    missing = {split: fraction for split, fraction in fractions.items() if split not in found}
    splits = {**found, **_hold_out(found["train"], folders["train"], missing, bad if skip_bad else ())}
    if skip_bad:
        splits = {split: _without(files, bad, root) for split, files in splits.items()}
    other = sum(_is_other(file) for folder in folders.values() for file in folder.rglob("*"))
    return ScannedFolder(root, splits, tuple(missing), shapes, bad, other)


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split that has one; without a folder `train` all images are in the folder itself."""
    if not (root / "train").is_dir():
        return {"train": root}
    folders = {}
    for split, names in _FOLDERS.items():
        there = [root / name for name in names if (root / name).is_dir()]
        if len(there) > 1:
            raise DataError(f"{root}: expected one folder of the split {split}, got {', '.join(map(str, there))}")
        if there:
            folders[split] = there[0]
    return folders


def _class_files(folder: Path, *, least: int = 2) -> Files:
    classes = sorted(sub for sub in folder.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    if not classes and not any(map(_is_image, folder.iterdir())):
        raise DataError(f"{folder}: expected images in one sub-folder per class, but found none")
    if len(classes) < least:
        raise DataError(
            f"{folder}: expected at least {least} sub-folders, got {len(classes)} (put the images of each class into "
            "one, and give the folder above)"
        )
    files = {sub.name: sorted(filter(_is_image, sub.rglob("*"))) for sub in classes}
    for name, found in files.items():
        if not found:
            raise DataError(
                f"{folder / name}: expected images of class '{name}', but found none (formats: {_formats()})"
            )
    return files


def _formats() -> str:
    return ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))


def list_images(folder: Path) -> list[Path]:
    """Return the image files in a folder and its sub-folders, by name; hidden files are left out.

    Args:
        folder: The folder.

    Returns:
        The files in alphabetical order.

    Example:
        >>> list_images(Path("my/photos"))  # doctest: +SKIP
    """
    return sorted(filter(_is_image, folder.rglob("*")))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _is_other(file: Path) -> bool:
    return file.suffix.lower() not in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _hold_out(files: Files, folder: Path, fractions: dict[str, float], bad: Collection[Path]) -> dict[str, Files]:
    splits: dict[str, Files] = {split: {} for split in ("train", *fractions)}
    for name, found in files.items():
        shares = _shares(name, found, folder, fractions)
        # With the bad files, so that an image keeps its split when a damaged one is repaired; but no split without
        # a readable image.
        if any(set(share) <= set(bad) for share in shares.values()):
            shares = _shares(name, [file for file in found if file not in bad], folder, fractions)
        for split, share in shares.items():
            splits[split][name] = share
    return splits


def _shares(name: str, found: list[Path], folder: Path, fractions: dict[str, float]) -> dict[str, list[Path]]:
    """Divide the files of a class into splits."""
    if len(found) <= len(fractions):
        raise DataError(
            f"{folder / name}: expected at least {len(fractions) + 1} readable images, one for each of "
            f"{', '.join(['train', *fractions])}, got {len(found)}"
        )
    order = sorted(found, key=lambda file: shuffle_key(file.relative_to(folder)))
    shares, start = {}, 0
    for split, fraction in fractions.items():
        count = max(1, round(fraction * len(found)))
        shares[split] = sorted(order[start : start + count])
        start += count
    return {"train": sorted(order[start:]), **shares}


def shuffle_key(name: Path) -> bytes:
    """Return a checksum of the name, by which images are shuffled in the same way on every machine."""
    return hashlib.sha256(name.as_posix().encode()).digest()


def _without(files: Files, bad: dict[Path, str], root: Path) -> Files:
    left = {name: [file for file in found if file not in bad] for name, found in files.items()}
    for name, found in left.items():
        if not found:
            raise DataError(f"{root}: expected a readable image of class '{name}' in each split, but found none")
    return left


def _check_files(files: Iterable[Path]) -> tuple[dict[Path, tuple[int, int, int]], dict[Path, str]]:
    """Return the shapes of the files that can be read, and the reasons for the others."""
    files = list(files)
    shapes, bad = {}, {}
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        for file, result in zip(files, pool.map(_try, files), strict=True):
            if isinstance(result, str):
                bad[file] = result
            else:
                shapes[file] = result
    return shapes, bad


def _try(file: Path) -> tuple[int, int, int] | str:
    try:
        state = file.stat()
    except OSError as error:
        return f"{file}: expected a readable image, got {error.strerror}"
    return _try_once(file, state.st_mtime_ns, state.st_size)


# All splits of a folder are loaded one after the other: a file that has not changed is not tried again.
@lru_cache(maxsize=2**18)
def _try_once(file: Path, changed: int, size: int) -> tuple[int, int, int] | str:
    try:
        # Only decoding shows whether a file is whole.
        read_image(file, (1, 8, 8))
        return probe_image(file)
    except DataError as error:
        return str(error)


def _round_side(side: int) -> int:
    """Round a side of at least 32 pixels to a multiple of 8."""
    return side if side < 32 else 8 * round(side / 8)


def _sides(image_size: int | Sequence[int]) -> tuple[int, int]:
    sides = [image_size] * 2 if isinstance(image_size, int) else list(image_size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ConfigError(f"image_size: expected (height, width), got {image_size!r}")
    return sides[0], sides[1]
