import gzip
import itertools
import struct

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import ConfigError, DataError

STEMS = {
    "train": ("smallnorb-5x46789x9x18x6x2x96x96-training", (4, 6, 7, 8, 9)),
    "test": ("smallnorb-5x01235x9x18x6x2x96x96-testing", (0, 1, 2, 3, 5)),
}
INFO = ("instance", "elevation", "azimuth", "lighting")


def write(path, array: np.ndarray) -> None:
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    path.write_bytes(struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes())


def make(folder, *, azimuths: bool = True) -> None:
    """A small smallNORB: all toys from 9 elevations and 18 azimuths under one light, almost all black."""
    folder.mkdir(parents=True)
    for data, (stem, instances) in STEMS.items():
        rows = np.array(list(itertools.product(range(5), instances, range(9), range(0, 36, 2), [3])), np.int32)
        rows = np.random.default_rng(0).permutation(rows)
        images = np.zeros((len(rows), 2, 96, 96), np.uint8)
        # The labels of an image are written into its corner, so that tests can identify images.
        images[:, 0, 0, :5] = rows
        labels, info = rows[:, 0].copy(), rows[:, 1:].copy()
        if not azimuths and data == "train":
            info[:, 2] = -1
        for kind, array in (("dat", images), ("cat", labels), ("info", info)):
            write(folder / f"{stem}-{kind}.mat", array)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    make(root / "smallnorb")
    return root


@pytest.fixture(scope="module")
def without_azimuths(tmp_path_factory):
    root = tmp_path_factory.mktemp("without")
    make(root / "smallnorb", azimuths=False)
    return root


@pytest.fixture
def norb(whole, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(whole))
    return whole


def corner(data) -> dict[str, torch.Tensor]:
    """The labels that the pixels encode, by name."""
    return dict(zip(("label", *INFO), data.images[:, 0, 0, :5].long().unbind(1), strict=True))


@pytest.mark.parametrize("split", ["train", "val", "train+val", "test"])
def test_images_labels_and_meta(norb, split):
    data = load_data("smallnorb", split, image_size=96)
    written = corner(data)
    assert torch.equal(data.labels, written["label"])
    for name in INFO:
        assert torch.equal(data.meta[name], written[name])
    assert data.image_shape == (2, 96, 96)
    assert data.class_names == ("animal", "human", "plane", "truck", "car")


def test_gzipped(tmp_path, norb, monkeypatch):
    plain = load_data("smallnorb", "val")
    (tmp_path / "smallnorb").mkdir()
    for file in (norb / "smallnorb").glob("*training*"):
        (tmp_path / "smallnorb" / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    assert torch.equal(load_data("smallnorb", "val").images, plain.images)


def test_sizes(norb):
    assert load_data("smallnorb", "val").image_shape == (2, 48, 48)
    assert load_data("smallnorb", "val", image_size=32).image_shape == (2, 32, 32)


@pytest.mark.parametrize("size", [-1, 0, 40, 192])
def test_wrong_size(norb, size):
    with raises_about(ConfigError, "image_size", f"got {size}"):
        load_data("smallnorb", "val", image_size=size)


def toys(data) -> set[tuple[int, int]]:
    return set(zip(data.labels.tolist(), data.meta["instance"].tolist(), strict=True))


def views(data) -> list[tuple[int, ...]]:
    return list(zip(data.labels.tolist(), *(values.tolist() for values in data.meta.values()), strict=True))


def test_random_validation(norb):
    train, val = load_data("smallnorb", "train"), load_data("smallnorb", "val")
    assert len(val) == 25 * 16
    assert toys(val) == toys(train)
    assert val.labels.bincount().tolist() == [80] * 5
    assert sorted(views(train) + views(val)) == sorted(views(load_data("smallnorb", "train+val")))


def test_instance_validation(norb):
    train, val = (load_data("smallnorb", split, val="instance") for split in ("train", "val"))
    assert toys(val) == {(k, 9) for k in range(5)}
    assert toys(train) == {(k, toy) for k in range(5) for toy in (4, 6, 7, 8)}


def test_no_validation_trains_on_all_images(norb):
    train, val = (load_data("smallnorb", split, val="none") for split in ("train", "val"))
    assert views(train) == views(load_data("smallnorb", "train+val"))
    assert len(val) == 0


def test_unknown_validation(norb):
    with raises_about(ConfigError, "val", "got 'toy'"):
        load_data("smallnorb", "val", val="toy")


@pytest.mark.parametrize(("viewpoint", "familiar"), [("azimuth", {30, 32, 34, 0, 2, 4}), ("elevation", {0, 1, 2})])
def test_viewpoint_protocols(norb, viewpoint, familiar):
    splits = {
        split: load_data("smallnorb", split, viewpoint=viewpoint)
        for split in ("train", "val", "train+val", "familiar", "novel", "test")
    }
    seen = {split: set(data.meta[viewpoint].tolist()) for split, data in splits.items()}
    assert seen["train"] == seen["val"] == seen["train+val"] == seen["familiar"] == familiar
    assert seen["novel"] == seen["test"] - familiar
    # A third is familiar; the toys of training and test differ; nothing is lost.
    assert len(splits["novel"]) == 2 * len(splits["familiar"]) == 2 * len(splits["train+val"]) == 2 * 1350
    assert not toys(splits["train+val"]) & toys(splits["test"])
    assert sorted(views(splits["familiar"]) + views(splits["novel"])) == sorted(views(splits["test"]))
    assert splits["train"].origin == str(norb / "smallnorb")


def test_azimuth_protocol_without_azimuths(without_azimuths, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(without_azimuths))
    splits = {
        split: load_data("smallnorb", split, viewpoint="azimuth")
        for split in ("train", "val", "train+val", "familiar", "novel", "test")
    }
    for split in ("train", "val", "train+val"):
        assert set(splits[split].meta["instance"].tolist()) == {0, 1, 2}
        assert set(splits[split].meta["azimuth"].tolist()) == {30, 32, 34, 0, 2, 4}
    for split in ("familiar", "novel", "test"):
        assert set(splits[split].meta["instance"].tolist()) == {3, 5}
    assert len(splits["novel"]) == 2 * len(splits["familiar"])
    assert len(splits["test"]) == 5 * 2 * 9 * 18
    for data in splits.values():
        assert "training azimuths unknown: test toys 0, 1, 2" in data.origin
    held_out = load_data("smallnorb", "val", viewpoint="azimuth", val="instance")
    assert set(held_out.meta["instance"].tolist()) == {2}
    # Everything else keeps to the training data.
    assert load_data("smallnorb", "train").origin == str(without_azimuths / "smallnorb")


@pytest.mark.parametrize("split", ["familiar", "novel"])
def test_viewpoint_splits_need_a_viewpoint(norb, split):
    with raises_about(ConfigError, "viewpoint"):
        load_data("smallnorb", split)


def test_unknown_viewpoint(norb):
    with raises_about(ConfigError, "viewpoint", "got 'lighting'"):
        load_data("smallnorb", "train", viewpoint="lighting")


def test_missing_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    monkeypatch.setattr("torchcaps.data._sources._cache", lambda: tmp_path / "cache")
    with raises_about(DataError, "testing-cat.mat.gz", "download it from https", "TORCHCAPS_DATA"):
        load_data("smallnorb", "test")


def test_wrong_info(tmp_path, norb, monkeypatch):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    (tmp_path / "smallnorb").mkdir()
    stem = STEMS["test"][0]
    write(tmp_path / "smallnorb" / f"{stem}-cat.mat", np.zeros(3, np.int32))
    write(tmp_path / "smallnorb" / f"{stem}-info.mat", np.zeros((2, 4), np.int32))
    with raises_about(DataError, "info.mat", "got 2 x 4"):
        load_data("smallnorb", "test")


@pytest.mark.parametrize("count", [2, 4])
def test_wrong_number_of_images(tmp_path, monkeypatch, count):
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    (tmp_path / "smallnorb").mkdir()
    stem = STEMS["test"][0]
    write(tmp_path / "smallnorb" / f"{stem}-cat.mat", np.zeros(3, np.int32))
    write(tmp_path / "smallnorb" / f"{stem}-info.mat", np.zeros((3, 4), np.int32))
    write(tmp_path / "smallnorb" / f"{stem}-dat.mat", np.zeros((count, 2, 96, 96), np.uint8))
    with raises_about(DataError, "dat.mat", f"got {count}"):
        load_data("smallnorb", "test")


def test_real_splits(real_data):
    test = load_data("smallnorb", "test")
    assert len(test) == 24300
    assert test.labels.bincount().tolist() == [4860] * 5
    assert set(test.meta["instance"].tolist()) == {0, 1, 2, 3, 5}
    # Every view of every toy, once.
    assert len(set(views(test))) == 24300
    val = load_data("smallnorb", "val")
    assert len(val) == 25 * 97
    # Pairs: the two cameras see nearly the same.
    left, right = val.images.float().flatten(2).unbind(1)
    assert torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1] > 0.8
