import gzip
import io

import numpy as np
import pytest
import torch

from formats import idx, npz, pixels, zip_of
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
    ("content", "reason"),
    [
        (npz(IMAGES)[:-20], "expected a whole npz file of bytes, got"),
        (zip_of({"other.npy": b""}), "expected a whole npz file of bytes, got .*arr_0"),
        (npz(IMAGES.astype(np.int16)), r"got 62,720 bytes for an array of int16 \(40, 28, 28\)"),
        (npz(LABELS), r"got sizes \(40,\) where 3 axes were expected"),
        (npz(pixels(0, 28, 28)), "where 3 axes were expected"),
        (pickled(Evil()), "bytes for an array of object"),
        (zip_of({"arr_0.npy": npy(IMAGES)[:-5]}), "expected a whole npz file"),
        (npz(np.zeros((60_010, 28, 28), np.uint8)), "got more than 47,044,096 bytes"),
        (b"", "expected a whole npz file"),
    ],
)
def test_damage(own_data, content, reason):
    write(own_data, {**NPZ, "kmnist-test-imgs.npz": content})
    with pytest.raises(DataError, match=rf"kmnist-test-imgs\.npz: .*{reason}.*; fetch it again"):
        load_data("kmnist", "test")


def test_a_header_that_announces_too_much(own_data):
    lie = npy(IMAGES).replace(b"(40, 28, 28)", b"(99999999,9)")
    write(own_data, {**NPZ, "kmnist-test-imgs.npz": zip_of({"arr_0.npy": lie})})
    with pytest.raises(DataError, match=r"got 31,360 bytes for an array of uint8 \(99999999, 9\)"):
        load_data("kmnist", "test")


def test_numbers_differ_and_nothing_at_hand(own_data):
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: expected it in .*get it from https://github"):
        load_data("kmnist", "test")
    write(own_data, {**NPZ, "kmnist-test-labels.npz": npz(LABELS[:-1])})
    with pytest.raises(DataError, match=r"kmnist-test-labels\.npz: expected 40 labels, one for each image, got 39"):
        load_data("kmnist", "test")
