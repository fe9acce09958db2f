import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from formats import idx, pixels
from torchcaps.data import DATASETS, check_data
from torchcaps.data._files import DataFile
from torchcaps.data.check import at_hand_source, here
from torchcaps.data.mnist import MNIST

IMAGES = idx(pixels(4, 3, 3))
LABELS = idx(np.zeros(4, np.uint8))
GOOD = gzip.compress(IMAGES)


@pytest.fixture
def small(own_data, monkeypatch):
    """A data set of four files: one verified, one an unverified copy, one broken, one missing, one optional."""
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


def test_each_state(small):
    states = {state.name[0]: state for state in check_data("small")}
    assert {name: state.status for name, state in states.items()} == {
        "a": "verified",
        "b": "unverified",
        "c": "broken",
        "d": "missing",
        "e": "missing",
    }
    assert states["b"].path == small / "b-images"
    assert states["c"].remedy.startswith("expected a whole gzip file, got a damaged one")
    assert states["c"].remedy.endswith("; remove it, then torchcaps data fetch small")
    assert states["d"].remedy.startswith("torchcaps data fetch small (into ")
    assert states["e"].remedy == "needed only when it is asked for"


def test_contents_tell_a_copy_that_was_unpacked(small):
    files = (DataFile("b-images.gz", "0" * 64, hashlib.sha256(IMAGES).hexdigest()),)
    DATASETS._items["small"] = replace(DATASETS["small"], sources=(replace(DATASETS["small"].sources[0], files=files),))
    assert [state.status for state in check_data("small")] == ["verified"]


def test_without_a_checksum_the_remedy_is_the_authors_page(own_data):
    assert "get it from https://www.cs.toronto.edu/~tijmen/affNIST/" in check_data("affnist")[-1].remedy


def test_the_form_that_is_at_hand_is_checked(own_data):
    (own_data / "kmnist").mkdir()
    (own_data / "kmnist" / "kmnist-test-imgs.npz").write_bytes(b"damaged")
    source = at_hand_source("kmnist")
    assert source is not None
    assert source is DATASETS["kmnist"].sources[1]
    assert [file.name for file in here(source)] == ["kmnist-test-imgs.npz"]
    assert [state.status for state in check_data("kmnist")] == ["missing", "missing", "broken", "missing"]


@pytest.mark.parametrize("name", [name for name in DATASETS if DATASETS[name].sources])
def test_a_broken_file_of_any_data_set_is_noticed(own_data, name):
    source = DATASETS[name].sources[0]
    path = own_data / source.folder / source.files[-1].name.removesuffix(".gz")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert check_data(name)[-1].status == "broken"


def test_real_data(real_data):
    assert {state.status for state in check_data("mnist")} == {"verified"}
    assert {state.status for state in check_data("cifar10")} <= {"verified", "missing"}
