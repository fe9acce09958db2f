import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from formats import idx, pixels
from torchcaps.data import DATASETS, verify_data
from torchcaps.data._sources import DataFile
from torchcaps.data.mnist import MNIST
from torchcaps.data.verify import local_files, local_source

IMAGES = idx(pixels(4, 3, 3))
LABELS = idx(np.zeros(4, np.uint8))
GOOD = gzip.compress(IMAGES)


@pytest.fixture
def small(own_data, monkeypatch):
    """A data set of five files: verified, unverified, broken, missing, optional."""
    files = (
        DataFile("a-images.gz", hashlib.sha256(GOOD).hexdigest()),
        DataFile("b-images.gz", hashlib.sha256(GOOD).hexdigest()),
        DataFile("c-images.gz", md5="0" * 32),
        DataFile("d-images.gz", md5="0" * 32),
        DataFile("e-images.gz", optional=True),
    )
    source = replace(MNIST.source, folder="small", files=files, packages=())
    monkeypatch.setitem(DATASETS._items, "small", replace(DATASETS["mnist"], sources=(source,)))
    (own_data / "small").mkdir()
    (own_data / "small" / "a-images.gz").write_bytes(GOOD)
    (own_data / "small" / "b-images").write_bytes(IMAGES)
    (own_data / "small" / "c-images.gz").write_bytes(GOOD[:-9])
    return own_data / "small"


def test_states(small):
    states = {state.name[0]: state for state in verify_data("small")}
    assert {name: state.status for name, state in states.items()} == {
        "a": "verified",
        "b": "unverified",
        "c": "broken",
        "d": "missing",
        "e": "missing",
    }
    assert states["b"].path == small / "b-images"
    assert states["c"].remedy.startswith("expected a gzip file, got a damaged one")
    assert states["c"].remedy.endswith("; remove it, then torchcaps data download small")
    assert states["d"].remedy.startswith("torchcaps data download small (into ")
    assert states["e"].remedy == "optional"


def test_content_checksum(small):
    files = (DataFile("b-images.gz", "0" * 64, hashlib.sha256(IMAGES).hexdigest()),)
    DATASETS._items["small"] = replace(DATASETS["small"], sources=(replace(DATASETS["small"].sources[0], files=files),))
    assert [state.status for state in verify_data("small")] == ["verified"]


def test_remedy_without_checksum(own_data):
    assert "download it from https://www.cs.toronto.edu/~tijmen/affNIST/" in verify_data("affnist")[-1].remedy


def test_local_form(own_data):
    (own_data / "kmnist").mkdir()
    (own_data / "kmnist" / "kmnist-test-imgs.npz").write_bytes(b"damaged")
    source = local_source("kmnist")
    assert source is not None
    assert source is DATASETS["kmnist"].sources[1]
    assert [file.name for file in local_files(source)] == ["kmnist-test-imgs.npz"]
    assert [state.status for state in verify_data("kmnist")] == ["missing", "missing", "broken", "missing"]


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS[name].sources])
def test_broken_file(own_data, name):
    source = DATASETS[name].sources[0]
    path = own_data / source.folder / source.files[-1].name.removesuffix(".gz")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert verify_data(name)[-1].status == "broken"


def test_real_data(real_data):
    assert {state.status for state in verify_data("mnist")} == {"verified"}
    assert {state.status for state in verify_data("cifar10")} <= {"verified", "missing"}
