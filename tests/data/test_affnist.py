import numpy as np
import pytest
import torch

from formats import mat, pixels
from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import ConfigError, DataError

LABELS = (np.arange(12) % 10).astype(np.float64)


def write(own_data, name: str, images: np.ndarray, labels: np.ndarray = LABELS) -> None:
    """Images [N, 40, 40]; a column each in the file, row by row."""
    path = own_data / "affnist" / f"{name}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"image": images.reshape(len(images), -1).T, "label_int": labels[None], "text": "words"}
    path.write_bytes(mat({"affNISTdata": content}))


def test_transformed(own_data):
    images = pixels(12, 40, 40)
    write(own_data, "transformed/test", images)
    write(own_data, "transformed/validation", images)
    for number in (2, 30):
        write(own_data, f"transformed/training_batches/{number}", pixels(12, 40, 40, seed=number))
    test = load_data("affnist", "test")
    assert torch.equal(test.images[:, 0], torch.from_numpy(images))
    assert test.labels.tolist() == LABELS.tolist()
    assert test.origin == str(own_data / "affnist" / "transformed")
    train = load_data("affnist", "train")
    assert len(train) == 24
    assert train.origin.endswith("(2 of 32 training batches)")
    assert torch.equal(train.images[12:, 0], torch.from_numpy(pixels(12, 40, 40, seed=30)))
    assert len(load_data("affnist", "train+val")) == 36
    assert len(load_data("affnist", "val")) == 12


def test_centered(own_data):
    for name in ("training", "validation", "test"):
        write(own_data, f"just_centered/{name}", pixels(12, 40, 40))
    sizes = [len(load_data("affnist", split, kind="centered")) for split in ("train", "val", "test", "train+val")]
    assert sizes == [12, 12, 12, 24]
    assert load_data("affnist", "train", kind="centered").origin.endswith("just_centered")
    with raises_about(ConfigError, "kind", "got 'moved'"):
        load_data("affnist", kind="moved")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"image": pixels(1599, 3), "label_int": LABELS[None]}, "1600 x N"),
        ({"label_int": LABELS[None]}, "1600 x N"),
        (pixels(2, 2), "1600 x N"),
        ({"image": pixels(1600, 3), "label_int": LABELS[None]}, "3 labels, one per image, got 12"),
        ({"image": pixels(1600, 3), "label_int": "abc"}, "3 labels, one per image, got no labels"),
        ({"image": pixels(1600, 12), "label_int": LABELS[None] + 1}, "labels from 0 to 9, got 1 to 10"),
    ],
)
def test_damage(own_data, content, reason):
    (own_data / "affnist" / "transformed").mkdir(parents=True)
    (own_data / "affnist" / "transformed" / "test.mat").write_bytes(mat({"affNISTdata": content}))
    with raises_about(DataError, "test.mat", reason):
        load_data("affnist", "test")


def test_missing_files(own_data):
    with raises_about(DataError, "test.mat", "no checksum is known", "https"):
        load_data("affnist", "test")
