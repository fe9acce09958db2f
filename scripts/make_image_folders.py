"""Write real image sets as folders with train, val and test, one sub-folder per class, for `torchcaps train FOLDER`.

    TORCHCAPS_DATA=DIR python scripts/make_image_folders.py OUT [eurosat eth80 retina breast svhn ...]

The sets are read from DIR in their original formats. No image of a test split shows an object, a photograph or a
neighbouring piece of ground that is in the training split.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from torchcaps.data.readers.mat import read_mat

# Numbers of EuroSAT's files in one block: neighbouring numbers can show neighbouring ground.
BLOCK = 60
RETINA = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
BREAST = ("malignant", "benign")
# Largest array that is read from a file.
MAX_BYTES = 2**30


class Item(NamedTuple):
    """An image of a folder: its split, class and name, and its pixels or the file that has them."""

    split: str
    label: str
    name: str
    image: np.ndarray | Path


def eurosat(source: Path) -> Iterator[Item]:
    """EuroSAT RGB: of every ten blocks of numbers of a class two are test, one is val."""
    for file in sorted((source / "eurosat" / "2750").glob("*/*.jpg")):
        block = int(re.findall(r"\d+", file.stem)[-1]) // BLOCK % 10
        yield Item({3: "test", 8: "test", 5: "val"}.get(block, "train"), file.parent.name, file.name, file)


def eth80(source: Path) -> Iterator[Item]:
    """ETH-80: of the ten objects of a class two are test, one is val."""
    folders: dict[str, list[tuple[int, Path]]] = {}
    for folder in (source / "eth80-cropped64").iterdir():
        if match := re.fullmatch(r"([a-z]+)(\d+)", folder.name):
            folders.setdefault(match[1], []).append((int(match[2]), folder))
    for label, objects in sorted(folders.items()):
        for position, (_, folder) in enumerate(sorted(objects)):
            split = {9: "test", 8: "test", 7: "val"}.get(position, "train")
            for file in sorted(folder.glob("*.png")):
                yield Item(split, label, file.name, file)


def _medmnist(source: Path, name: str, labels: tuple[str, ...]) -> Iterator[Item]:
    with np.load(source / "medmnist" / f"{name}.npz", allow_pickle=False) as arrays:
        for split in ("train", "val", "test"):
            for number, (image, label) in enumerate(
                zip(arrays[f"{split}_images"], arrays[f"{split}_labels"], strict=True)
            ):
                yield Item(split, labels[int(label[0])], f"{number:04d}.png", image)


def svhn(source: Path) -> Iterator[Item]:
    """SVHN: the last tenth of the training digits is val, so that few photographs are in both."""
    for split, file in (("train", "train_32x32.mat"), ("test", "test_32x32.mat")):
        arrays = read_mat(source / "svhn" / file, ("X", "y"), MAX_BYTES)
        images, labels = np.asarray(arrays["X"]), np.asarray(arrays["y"]).ravel()  # [32, 32, 3, N], [N]
        for number, label in enumerate(labels):
            part = "val" if split == "train" and number >= 0.9 * len(labels) else split
            yield Item(part, str(label % 10), f"{number:05d}.png", images[..., number])


SETS: dict[str, Callable[[Path], Iterator[Item]]] = {
    "eurosat": eurosat,
    "eth80": eth80,
    "retina": lambda source: _medmnist(source, "retinamnist", RETINA),
    "breast": lambda source: _medmnist(source, "breastmnist", BREAST),
    "svhn": svhn,
}


def write_folder(items: Iterator[Item], folder: Path) -> int:
    """Write images into a new folder: SPLIT/CLASS/NAME. Files are copied byte by byte.

    Args:
        items: The images.
        folder: The folder, which must not exist.

    Returns:
        The number of images.

    Raises:
        FileExistsError: If the folder exists.
    """
    folder.mkdir(parents=True)
    count = 0
    for split, label, name, image in items:
        target = folder / split / label
        target.mkdir(parents=True, exist_ok=True)
        if isinstance(image, Path):
            (target / name).write_bytes(image.read_bytes())
        else:
            Image.fromarray(image).save(target / name)
        count += 1
    return count


def main() -> None:
    """Write the folders that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that gets one folder per set")
    parser.add_argument("sets", nargs="*", help=f"names (default: all of {', '.join(SETS)})")
    args = parser.parse_args()
    source = os.environ.get("TORCHCAPS_DATA")
    if not source:
        parser.error("TORCHCAPS_DATA: expected the folder of the data sets, but it is not set")
    for name in args.sets or SETS:
        if name not in SETS:
            parser.error(f"unknown set '{name}'; known: {', '.join(SETS)}")
        print(f"{name}: {write_folder(SETS[name](Path(source)), args.out / name):,} images")


if __name__ == "__main__":
    main()
