import gzip

import numpy as np
import pytest
import torch

from formats import idx, pixels, zip_of
from raising import raises_about
from torchcaps.data import load_data
from torchcaps.data.emnist import CLASS_NAMES
from torchcaps.errors import ConfigError, DataError

FIRST = {"letters": 1, "balanced": 0, "digits": 0}


def members(images: np.ndarray | None = None, shift: int = 0) -> dict[str, bytes]:
    """The twelve files by name: 94 images of each."""
    found = {}
    for subset, names in CLASS_NAMES.items():
        for half in ("train", "test"):
            stored = pixels(94, 28, 28, seed=len(found)) if images is None else images
            labels = np.arange(94, dtype=np.uint8) % len(names) + FIRST[subset] + shift
            stem = f"emnist-{subset}-{half}"
            found[f"{stem}-images-idx3-ubyte.gz"] = gzip.compress(idx(stored), 1)
            found[f"{stem}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels.astype(np.uint8)), 1)
    return found


def write(folder, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("subset", ["letters", "balanced", "digits"])
def test_subsets(own_data, subset):
    write(own_data / "emnist", members())
    both = load_data("emnist", "train+val", subset=subset)
    assert both.labels.tolist() == [place % len(CLASS_NAMES[subset]) for place in range(94)]
    assert both.class_names == CLASS_NAMES[subset]
    assert len(load_data("emnist", "val", subset=subset, val_size=10)) == 10
    assert len(load_data("emnist", "train", subset=subset, val_size=10)) == 84
    assert len(load_data("emnist", "test", subset=subset)) == 94


def test_class_names():
    assert [len(names) for names in CLASS_NAMES.values()] == [26, 47, 10]
    assert CLASS_NAMES["balanced"][10] == "A"
    assert CLASS_NAMES["balanced"][36:38] == ("a", "b")
    assert CLASS_NAMES["balanced"][46] == "t"


def test_images_are_upright(own_data):
    upright = pixels(94, 28, 28)
    write(own_data / "emnist", members(upright.transpose(0, 2, 1).copy()))
    assert torch.equal(load_data("emnist", "test").images[:, 0], torch.from_numpy(upright))


@pytest.mark.parametrize("place", ["emnist/gzip.zip", "gzip.zip"])
def test_archive(own_data, place):
    archive = own_data / place
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(zip_of({f"gzip/{name}": content for name, content in members().items()}))
    assert len(load_data("emnist", "test", subset="letters")) == 94


def test_unpacked_archive(own_data):
    write(own_data / "emnist" / "gzip", members())
    assert len(load_data("emnist", "test")) == 94
    plain = {name.removesuffix(".gz"): gzip.decompress(content) for name, content in members().items()}
    write(own_data / "emnist", plain)
    assert load_data("emnist", "test").origin == str(own_data / "emnist")


def test_damage(own_data):
    with raises_about(ConfigError, "subset", "'byclass'"):
        load_data("emnist", subset="byclass")
    with raises_about(DataError, "emnist-balanced-train-images", "gzip.zip", "https"):
        load_data("emnist")
    write(own_data / "emnist", members(shift=100))
    with raises_about(DataError, "labels-idx1-ubyte.gz", "47 classes"):
        load_data("emnist")
    write(own_data / "emnist", members(pixels(93, 28, 28)))
    with raises_about(DataError, "labels-idx1-ubyte.gz", "expected 93", "got 94"):
        load_data("emnist")
