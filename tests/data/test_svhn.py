import numpy as np
import pytest
import torch

from formats import mat, pixels
from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import DataError

LABELS = np.array([[1 + place % 10] for place in range(30)], np.uint8)


def write(own_data, name: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Images [N, 3, 32, 32], as they should come back."""
    (own_data / "svhn").mkdir(exist_ok=True)
    stored = images.transpose(2, 3, 1, 0)
    stored = stored[..., 0] if len(images) == 1 else stored
    (own_data / "svhn" / f"{name}_32x32.mat").write_bytes(mat({"X": stored, "y": labels}))


def test_splits(own_data):
    images = pixels(30, 3, 32, 32)
    for name in ("train", "test", "extra"):
        write(own_data, name, images, LABELS)
    both = load_data("svhn", "train+val")
    assert torch.equal(both.images, torch.from_numpy(images))
    # The label 10 is the digit 0.
    assert both.labels.tolist() == [(1 + place % 10) % 10 for place in range(30)]
    assert len(load_data("svhn", "test")) == 30
    train, val = (load_data("svhn", split, val_size=10, extra=True) for split in ("train", "val"))
    assert (len(train), len(val)) == (50, 10)
    assert train.origin.endswith("(with extra)")
    assert len(load_data("svhn", "test", extra=True)) == 30


def test_float_labels_and_one_image(own_data):
    write(own_data, "test", pixels(1, 3, 32, 32), np.array([[10.0]]))
    assert load_data("svhn", "test").labels.tolist() == [0]


@pytest.mark.parametrize(
    ("X", "y", "reason"),
    [
        (pixels(32, 32, 2, 30), LABELS, "32 x 32 x 3 x N, got uint8"),
        (np.zeros((32, 32, 3, 30), np.int16), LABELS, "32 x 32 x 3 x N, got int16"),
        ({"a": LABELS}, LABELS, "32 x 32 x 3 x N, got dict"),
        (pixels(32, 32, 3, 30), LABELS[:-1], "30 labels y, one per image, got uint8"),
        (pixels(32, 32, 3, 30), LABELS + 0.5, "30 labels y, one per image, got float64"),
        (pixels(32, 32, 3, 30), LABELS * np.nan, "30 labels y, one per image, got float64"),
        (pixels(32, 32, 3, 30), LABELS - 1, "from 1 to 10, got 0 to 9"),
    ],
)
def test_damage(own_data, X, y, reason):  # noqa: N803
    (own_data / "svhn").mkdir()
    (own_data / "svhn" / "test_32x32.mat").write_bytes(mat({"X": X, "y": y}))
    with raises_about(DataError, "test_32x32.mat", reason):
        load_data("svhn", "test")


def test_missing_files(own_data):
    with raises_about(DataError, "train_32x32.mat", "download it from http://ufldl"):
        load_data("svhn")
