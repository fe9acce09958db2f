import gzip
import io

import numpy as np
import pytest
import torch

from formats import idx, npz, pixels, zip_of
from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import DataError

IMAGES, LABELS = pixels(40, 28, 28), np.arange(40, dtype=np.uint8) % 10
IDX = {
    f"{part}-{kind}-ubyte.gz": gzip.compress(idx(array))
    for part in ("train", "t10k")
    for kind, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS))
}
NPZ = {
    f"kmnist-{part}-{kind}.npz": npz(array)
    for part in ("train", "test")
    for kind, array in (("imgs", IMAGES), ("labels", LABELS))
}


def write(own_data, files: dict[str, bytes]) -> None:
    (own_data / "kmnist").mkdir(exist_ok=True)
    for name, content in files.items():
        (own_data / "kmnist" / name).write_bytes(content)


@pytest.mark.parametrize("files", [IDX, NPZ], ids=["idx", "npz"])
def test_both_forms(own_data, files):
    write(own_data, files)
    both = load_data("kmnist", "train+val")
    assert torch.equal(both.images[:, 0], torch.from_numpy(IMAGES))
    assert both.labels.tolist() == LABELS.tolist()
    assert both.class_names[0] == "o"
    assert len(load_data("kmnist", "val", val_size=10)) == 10
    assert len(load_data("kmnist", "train", val_size=10)) == 30
    assert len(load_data("kmnist", "test")) == 40


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


class Evil:
    def __reduce__(self):
        return exit, (3,)


def pickled(thing: object) -> bytes:
    array = np.empty(1, object)
    array[0] = thing
    return zip_of({"arr_0.npy": npy(array)})


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (npz(IMAGES)[:-20], "npz"),
        (zip_of({"other.npy": b""}), "arr_0"),
        (npz(IMAGES.astype(np.int16)), "62,720 bytes for an array of int16 (40, 28, 28)"),
        (npz(LABELS), "sizes (40,), expected 3 axes"),
        (npz(pixels(0, 28, 28)), "expected 3 axes"),
        (pickled(Evil()), "bytes for an array of object"),
        (zip_of({"arr_0.npy": npy(IMAGES)[:-5]}), "npz"),
        (npz(np.zeros((60_010, 28, 28), np.uint8)), "got more than 47,044,096 bytes"),
        (b"", "npz"),
    ],
)
def test_damage(own_data, content, got):
    write(own_data, {**NPZ, "kmnist-test-imgs.npz": content})
    with raises_about(DataError, "kmnist-test-imgs.npz", got):
        load_data("kmnist", "test")


def test_huge_header(own_data):
    wrong = npy(IMAGES).replace(b"(40, 28, 28)", b"(99999999,9)")
    write(own_data, {**NPZ, "kmnist-test-imgs.npz": zip_of({"arr_0.npy": wrong})})
    with raises_about(DataError, "kmnist-test-imgs.npz", "31,360 bytes for an array of uint8"):
        load_data("kmnist", "test")


def test_missing_files_and_labels(own_data):
    with raises_about(DataError, "t10k-images-idx3-ubyte.gz", "download it from https://github"):
        load_data("kmnist", "test")
    write(own_data, {**NPZ, "kmnist-test-labels.npz": npz(LABELS[:-1])})
    with raises_about(DataError, "kmnist-test-labels.npz", "got 39"):
        load_data("kmnist", "test")
