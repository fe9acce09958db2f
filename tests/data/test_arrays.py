"""Signals, images and volumes from one file, and arrays of every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from formats import array_file, pixels, signal_file
from raising import raises_about
from torchcaps.data import Augment, BatchLoader, InMemoryDataset, describe, load_data
from torchcaps.data.arrays import scan_arrays
from torchcaps.errors import ConfigError, DataError, ShapeError, TorchcapsError


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_signals_are_standardised_by_the_training_split(tmp_path: Path) -> None:
    path = write(tmp_path, "made_TRAIN.ts", signal_file([8] * 20))
    write(tmp_path, "made_TEST.ts", signal_file([8] * 6))
    train, val, test = (load_data("arrays", split, path=path) for split in ("train", "val", "test"))
    assert (train.name, train.image_shape, train.class_names) == ("made", (2, 8), ("low", "high"))
    assert (len(train), len(val), len(test)) == (16, 4, 6)
    assert len(load_data("arrays", "train+val", path=path)) == 20
    assert train.images.dtype == torch.float32
    assert torch.allclose(train.images.mean(dim=(0, 2)), torch.zeros(2), atol=1e-5)
    assert torch.allclose(train.images.std(dim=(0, 2), correction=0), torch.ones(2), atol=1e-4)
    # The test split has the mean of the training split taken away, not its own.
    assert test.images.mean(dim=(0, 2)).abs().max() > 1e-4


def test_signals_of_different_lengths_are_resampled(tmp_path: Path) -> None:
    text = "@classLabel true a b\n@data\n0,1,2:a\n0,1,2,3,4:b\n4:a\n1,1,1:b\n1,1,1:a\n1,1,1:b\n"
    path = write(tmp_path, "made.ts", text.encode())
    found = scan_arrays(path, test_fraction=0.3, val_fraction=0.3)
    assert found.lengths == (1, 5)
    rows = np.concatenate([values for values, _ in found.splits.values()])
    assert [0, 0.5, 1, 1.5, 2] in rows[:, 0].tolist()
    assert [0, 1, 2, 3, 4] in rows[:, 0].tolist()
    assert [4, 4, 4, 4, 4] in rows[:, 0].tolist()
    assert scan_arrays(path, length=9).splits["train"][0].shape[2] == 9


@pytest.mark.parametrize(
    ("samples", "shape", "dtype"),
    [
        (np.linspace(0, 9, 12 * 7).reshape(12, 7), (1, 7), torch.float32),
        (np.linspace(0, 9, 12 * 21).reshape(12, 3, 7), (3, 7), torch.float32),
        (pixels(12, 6, 5), (1, 6, 5), torch.uint8),
        (pixels(12, 6, 5, 3), (3, 6, 5), torch.uint8),
        (pixels(12, 3, 6, 5), (3, 6, 5), torch.uint8),
        (pixels(12, 6, 5, 4), (1, 6, 5, 4), torch.uint8),
        (pixels(12, 2, 6, 5, 4), (2, 6, 5, 4), torch.uint8),
    ],
)
def test_kind_of_arrays(tmp_path: Path, samples: np.ndarray, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    data = load_data("arrays", "train", path=write(tmp_path, "a.npz", array_file(samples)))
    assert data.image_shape == shape
    assert data.images.dtype == dtype
    assert data.class_names == ("0", "1", "2")
    assert describe(data)["image_shape"] == list(shape)


def test_given_splits_are_kept(tmp_path: Path) -> None:
    arrays = {f"{split}_images": pixels(size, 5, 5) for split, size in (("train", 9), ("val", 6), ("test", 3))}
    arrays |= {
        f"{split}_labels": np.arange(size)[:, None] % 3 for split, size in (("train", 9), ("val", 6), ("test", 3))
    }
    np.savez(tmp_path / "med.npz", **arrays)  # pyright: ignore[reportArgumentType]
    found = scan_arrays(tmp_path / "med.npz")
    assert found.held_out == ()
    assert {split: len(labels) for split, (_, labels) in found.splits.items()} == {"train": 9, "val": 6, "test": 3}
    assert np.array_equal(load_data("arrays", "test", path=tmp_path / "med.npz").images[:, 0], arrays["test_images"])


def test_npy_with_labels_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 2, 9)))
    with raises_about(DataError, "labels", tmp_path / "x_labels.npy"):
        load_data("arrays", "train", path=tmp_path / "x.npy")
    np.save(tmp_path / "x_labels.npy", np.arange(12) % 2)
    assert load_data("arrays", "train", path=tmp_path / "x.npy").image_shape == (2, 9)
    np.save(tmp_path / "y.npy", np.arange(12) % 3)
    assert load_data("arrays", "val", path=tmp_path / "x.npy", labels=tmp_path / "y.npy").num_classes == 3


def with_value(value: float) -> np.ndarray:
    samples = np.zeros((12, 2, 9), np.float32)
    samples[4, 1, 7] = value
    return samples


@pytest.mark.parametrize(
    ("content", "options", "kind", "about"),
    [
        (array_file(with_value(np.nan)), {}, DataError, ["nan", "signal 4", "channel 1", "time 7"]),
        (array_file(with_value(np.inf)), {}, DataError, ["inf", "signal 4"]),
        (array_file(np.zeros((12, 2, 0), np.float32)), {}, DataError, ["(12, 2, 0)", "at least one value"]),
        (array_file(pixels(12, 4, 4), y=np.arange(11) % 3), {}, DataError, ["labels", "12", "11"]),
        (array_file(pixels(12, 4, 4), y=np.zeros(12, int)), {}, DataError, ["two classes"]),
        (array_file(pixels(12, 4, 4), y=np.arange(12) / 2), {}, DataError, ["integers", "float64"]),
        (array_file(pixels(2, 4, 4), y=np.arange(2)), {}, DataError, ["got 1"]),
        (array_file(pixels(1, 4, 4), y=np.zeros(1, int)), {}, DataError, ["got 1"]),
        (array_file(np.ones((6, 2), object)), {}, DataError, ["object"]),
        (array_file(2 * np.ones((12, 1, 4, 4))), {}, DataError, ["[0, 1]"]),
        (
            array_file(pixels(12, 4, 4), test_x=pixels(3, 5, 5), test_y=np.arange(3)),
            {},
            DataError,
            ["test", "(1, 5, 5)"],
        ),
        (array_file(pixels(12, 4, 4)), {"rank": 3}, DataError, ["D, H, W"]),
        (array_file(pixels(12, 4, 4)), {"rank": 4}, ConfigError, ["rank", "4"]),
        (array_file(pixels(12, 4, 4)), {"val_fraction": 1.0}, ConfigError, ["val_fraction", "1.0"]),
        (array_file(pixels(12, 4, 4)), {"length": 0}, ConfigError, ["length", "0"]),
        (b"PK nothing", {}, DataError, [".npz"]),
    ],
)
def test_wrong_files(
    tmp_path: Path, content: bytes, options: dict[str, Any], kind: type[TorchcapsError], about: list[str]
) -> None:
    path = write(tmp_path, "a.npz", content)
    names = about if kind is ConfigError else [path, *about]
    with raises_about(kind, *names):
        load_data("arrays", "train", path=path, **options)


def test_small_compressed_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((65, 1000, 1000), np.uint8), y=np.arange(65) % 3)
    assert path.stat().st_size < 100_000
    with raises_about(DataError, path, "64,000,000"):
        load_data("arrays", "train", path=path)


def test_resampled_signals_cannot_fill_the_memory(tmp_path: Path) -> None:
    text = "@classLabel true a b\n@data\n" + "1:a\n2:b\n" * 5_000
    path = write(tmp_path, "made.ts", f"{text}{'1,' * 9_999}1:a\n".encode())
    with raises_about(DataError, path, "64,000,000", "10,000", f"{10_000 * 10_001:,}", "length"):
        load_data("arrays", "train", path=path)
    assert load_data("arrays", "train", path=path, length=4).image_shape == (1, 4)
    np.savez(tmp_path / "a.npz", x=np.zeros((12, 8)), y=np.arange(12) % 3)
    with raises_about(DataError, "a.npz", "64,000,000", f"{12 * 10**12:,}"):
        load_data("arrays", "train", path=tmp_path / "a.npz", length=10**12)


def test_labels_that_are_no_classes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.npz", array_file(np.zeros((10_001, 2)), y=np.arange(10_001)))
    with raises_about(DataError, path, "10,000 classes", "10,001"):
        load_data("arrays", "train", path=path)


def test_class_without_samples(tmp_path: Path) -> None:
    text = "@classLabel true a b c\n@data\n" + "0,1,2:a\n0,1,2:b\n" * 5
    path = write(tmp_path, "made.ts", text.encode())
    with raises_about(DataError, path, "'c'", "every class"):
        load_data("arrays", "train", path=path)


def test_names_of_arrays_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=np.zeros(3), second=np.zeros(3))
    with raises_about(DataError, tmp_path / "a.npz", "first, second"):
        load_data("arrays", "train", path=tmp_path / "a.npz")
    with raises_about(ConfigError, "path", "a.txt"):
        load_data("arrays", "train", path="a.txt")
    with raises_about(DataError, "none.npz", "there is none"):
        load_data("arrays", "train", path=tmp_path / "none.npz")


def test_batches_of_signals() -> None:
    signals = torch.randn(10, 3, 20)
    data = InMemoryDataset.from_arrays(signals, [0, 1] * 5, rank=1)
    images, labels = next(iter(BatchLoader(data, 5)))
    assert torch.equal(images, signals[:5])
    assert labels.tolist() == [0, 1, 0, 1, 0]
    assert torch.equal(data[3][0], signals[3])
    assert data[2:4].images.shape == (2, 3, 20)
    with raises_about(ShapeError, "images", "signals"):
        next(iter(BatchLoader(data, 5, shuffle=True, augment=Augment(shift=2))))
    with raises_about(ShapeError, "size", (3, 20)):
        data.cropped(8)


@pytest.mark.parametrize(
    ("samples", "rank", "kind", "about"),
    [
        (np.full((2, 5), np.nan), 1, DataError, ["images", "signal 0"]),
        (np.zeros((2, 3, 0)), 1, ShapeError, ["images", "(2, 3, 0)"]),
        (np.zeros((2, 3, 4, 5)), 1, ShapeError, ["images", "[N, C, T]"]),
        (np.zeros((2, 5)), 3, ShapeError, ["images", "[N, C, D, H, W]"]),
        (np.zeros((2, 5)), 0, ConfigError, ["rank", "0"]),
        (np.array([["a", "b"], ["c", "d"]]), 1, DataError, ["images", "numbers"]),
    ],
)
def test_wrong_arrays(samples: np.ndarray, rank: int, kind: type[TorchcapsError], about: list[str]) -> None:
    with raises_about(kind, *about):
        InMemoryDataset.from_arrays(samples, [0, 1], rank=rank)


def test_medmnist(real_data: Path) -> None:
    path = real_data / "medmnist" / "retinamnist.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    found = {split: load_data("arrays", split, path=path) for split in ("train", "val", "test")}
    assert {split: len(data) for split, data in found.items()} == {"train": 1080, "val": 120, "test": 400}
    assert found["train"].image_shape == (3, 28, 28)
    assert torch.bincount(found["train"].labels).tolist() == [486, 128, 206, 194, 66]
