from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import InMemoryDataset, assign_folds, load_data, register_data
from torchcaps.errors import ConfigError, DataError

PATIENTS = {"cat": ("ann", "bob", "cid", "dan", "eve"), "dog": ("ann", "fay", "gil", "hal", "ida", "jan")}


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes with a sub-folder per patient; patient k of a class has k + 1 images, ann is in both classes."""
    root = tmp_path_factory.mktemp("patients") / "images"
    for name, people in PATIENTS.items():
        for number, person in enumerate(people):
            (root / name / person).mkdir(parents=True)
            for image in range(number + 1):
                # Equal images have equal file names in other folders.
                light = 100 * number + 10 * image + (name == "dog")
                Image.fromarray(np.full((8, 8), light % 256, np.uint8)).save(root / name / person / f"{image}.png")
    return root


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_are_stratified(folds):
    labels = torch.tensor([0] * 17 + [1] * 5 + [2] * 8)
    assigned = assign_folds(labels, folds, seed=1)
    assert assigned.tolist() != assign_folds(labels, folds, seed=2).tolist()
    assert assigned.tolist() == assign_folds(labels, folds, seed=1).tolist()
    for chosen in (labels == 0, labels == 1, labels == 2, labels >= 0):
        counts = torch.bincount(assigned[chosen], minlength=folds)
        assert int(counts.max() - counts.min()) <= 1


def test_groups_stay_together_and_classes_in_proportion():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 60, (600,), generator=generator)
    # Each group has one class, the third class is rare.
    labels = torch.tensor([0, 0, 0, 1, 1, 2])[groups % 6]
    assigned = assign_folds(labels, 5, groups=groups.tolist())
    for group in groups.unique():
        assert len(assigned[groups == group].unique()) == 1
    for label in range(3):
        counts = torch.bincount(assigned[labels == label], minlength=5) / (labels == label).sum()
        assert 0.1 < counts.min() <= counts.max() < 0.3


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_splits_of_a_fold(fold):
    options = {"source": "digits", "fold": fold, "folds": 3}
    train, val, test = (load_data("folds", split, **options) for split in ("train", "val", "test"))
    assert (len(train) + len(val) + len(test), len(load_data("folds", "train+val", **options))) == (
        5000,
        5000 - len(test),
    )
    assert abs(len(val) - 333) <= 1
    every = torch.cat([data.images.flatten(1) for data in (train, val, test)]).sort(0).values
    assert torch.equal(every, load_data("digits", "train+val").images.flatten(1).sort(0).values)
    assert test.name == f"digits, fold {fold} of 3"


def test_every_image_is_tested_once(patients):
    options = {"source": "folder", "folds": 4, "options": {"path": str(patients)}, "groups": "folder"}
    tested = torch.cat([load_data("folds", "test", fold=fold, **options).images for fold in range(1, 5)])
    everything = sorted(np.asarray(Image.open(file))[0, 0].item() for file in patients.rglob("*.png"))
    assert sorted(tested[:, 0, 0, 0].tolist()) == everything


def values(split: str, path: Path, **options: Any) -> set[int]:
    data = load_data("folds", split, source="folder", folds=3, options={"path": str(path)}, **options)
    return set(data.images[:, 0, 0, 0].tolist())


def test_groups_by_sub_folder_and_by_table_are_the_same(patients, tmp_path):
    table = tmp_path / "of patients.csv"
    rows = [f"{file.relative_to(patients).as_posix()},{file.parent.name}" for file in patients.rglob("*.png")]
    table.write_text("\n".join(["image,patient", *rows]))
    whose = {Image.open(file).getpixel((0, 0)): file.parent.name for file in patients.rglob("*.png")}
    for fold in (1, 2, 3):
        people = []
        for split in ("train", "val", "test"):
            found = values(split, patients, fold=fold, groups="folder")
            assert found == values(split, patients, fold=fold, groups=f"{table}:patient")
            people.append({whose[value] for value in found})
        assert sum(map(len, people)) == len(people[0] | people[1] | people[2])
        assert people[0] | people[1] | people[2] == {name for each in PATIENTS.values() for name in each}


def test_groups_of_a_data_set():
    images = np.zeros((24, 8, 8), np.uint8)
    meta = {"instance": torch.arange(24) // 4}
    data = InMemoryDataset("bars", "train", torch.from_numpy(images)[:, None], torch.arange(24) % 2, "ab", "here", meta)
    register_data("with instances", data, data, val=data)
    options = {"source": "with instances", "fold": 1, "folds": 3}
    seen = [
        set(load_data("folds", split, groups="instance", **options).meta["instance"].tolist())
        for split in ("train", "test")
    ]
    assert not seen[0] & seen[1]
    with raises_about(ConfigError, "groups", "instance", "patient"):
        load_data("folds", "test", groups="patient", **options)


@pytest.fixture
def signals(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Sixty signals of two classes by twelve people, without test samples, and a table of whose each is."""
    whose = np.arange(60) // 5
    values = np.random.default_rng(0).normal(3.0, 2.0, (60, 2, 16)).astype(np.float32)
    np.savez(tmp_path / "signals.npz", x=values, y=whose % 2)
    (tmp_path / "people.csv").write_text("\n".join(["row,person", *(f"{row},p{whose[row]}" for row in range(60))]))
    return tmp_path / "signals.npz", values


def test_folds_of_arrays_have_all_samples_and_no_person_twice(signals):
    path, values = signals
    options = {"source": "arrays", "folds": 3, "options": {"path": str(path)}}
    groups, tested = f"{path.with_name('people.csv')}:person", []
    for fold in (1, 2, 3):
        people = {}
        rest = load_data("folds", "train+val", fold=fold, groups=groups, **options)
        # Signals are standardised with what is not tested.
        assert rest.images.mean(dim=(0, 2)) == pytest.approx(np.zeros(2), abs=1e-5)
        assert rest.images.std(dim=(0, 2), unbiased=False) == pytest.approx(np.ones(2), abs=1e-5)
        for split in ("train", "val", "test"):
            data = load_data("folds", split, fold=fold, groups=groups, **options)
            # Standardising keeps the differences of a signal up to one factor per channel.
            slopes = data.images.diff(dim=2)[:, 0]
            known = torch.from_numpy(np.diff(values, axis=2)[:, 0])
            alike = torch.nn.functional.normalize(slopes, dim=1) @ torch.nn.functional.normalize(known, dim=1).T
            rows = alike.argmax(dim=1)
            people[split] = set((rows // 5).tolist())
            tested += rows.tolist() if split == "test" else []
            assert torch.equal(data.labels, rows // 5 % 2)
        assert len(people["train"] | people["val"] | people["test"]) == sum(map(len, people.values())) == 12
    assert sorted(tested) == list(range(60))


def test_test_samples_of_arrays_stay_apart(tmp_path):
    values, labels = np.random.default_rng(0).normal(size=(40, 1, 8)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "a.npz", x_train=values[:30], y_train=labels[:30], x_test=values[30:], y_test=labels[30:])
    options = {"source": "arrays", "folds": 3, "options": {"path": str(tmp_path / "a.npz")}}
    assert sum(len(load_data("folds", "test", fold=fold, **options)) for fold in (1, 2, 3)) == 30


@pytest.mark.parametrize(
    ("rows", "groups", "error", "about"),
    [
        (["p1"] * 59, "people.csv:person", DataError, ("60", "59")),
        (["p1"] * 7 + [""] + ["p2"] * 52, "people.csv:person", DataError, ("person", "row 8")),
        (["p1"] * 60, "people.csv:patient", ConfigError, ("groups", "patient")),
        (["p1"] * 60, "folder", ConfigError, ("groups", "folder")),
    ],
)
def test_wrong_groups_of_arrays(signals, rows, groups, error, about):
    path, _ = signals
    path.with_name("people.csv").write_text(
        "\n".join(["row,person", *(f"{row},{name}" for row, name in enumerate(rows))])
    )
    groups = f"{path.parent}/{groups}" if ":" in groups else groups
    with raises_about(error, *about):
        load_data("folds", "test", source="arrays", fold=1, folds=3, groups=groups, options={"path": str(path)})


def test_class_with_fewer_images_than_folds(patients):
    with raises_about(ConfigError, "folds", "cat", 15, 16):
        load_data("folds", "test", source="folder", fold=1, folds=16, options={"path": str(patients)})
    with raises_about(ConfigError, "folds", "groups", "cat", 5, 6):
        load_data("folds", "test", source="folder", fold=1, folds=6, options={"path": str(patients)}, groups="folder")


def test_class_without_images_for_validation():
    data = InMemoryDataset.from_arrays(np.zeros((8, 8, 8), np.uint8), [0, 0, 0, 0, 0, 0, 1, 1], class_names=["a", "b"])
    register_data("two of b", data, data, val=data.subset([0]))
    with raises_about(ConfigError, "folds", "'b'", 1):
        load_data("folds", "train", source="two of b", fold=1, folds=2)


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"fold": 6, "folds": 5}, ("fold", 6)),
        ({"fold": 1, "folds": 1}, ("folds", 1)),
        ({"fold": 0, "folds": 5}, ("fold", 0)),
        ({"fold": 1, "folds": 2.0}, ("folds", "2.0")),
        ({"fold": 1, "folds": 2, "source": "folds"}, ("source", "folds")),
        ({"fold": 1, "folds": 2, "source": "folder"}, ("path", "is not set")),
        ({"fold": 1, "folds": 2, "options": {"pth": "x"}}, ("pth", "digits")),
    ],
)
def test_wrong_options(options, about):
    with raises_about(ConfigError, *about):
        load_data("folds", "test", **{"source": "digits", **options})


def test_images_of_two_labels():
    with raises_about(DataError, "folds", 2, "multimnist"):
        load_data("folds", "test", source="multimnist", fold=1, folds=2, options={"source": "digits"})


def test_wrong_groups(patients, tmp_path):
    options = {"path": patients, "fold": 1}
    table = tmp_path / "few.csv"
    table.write_text("file,patient\ncat/ann/0.png,ann\n")
    with raises_about(DataError, table, "cat/bob/0.png", 34):
        values("test", groups=f"{table}:patient", **options)
    with raises_about(ConfigError, "groups", "person", table):
        values("test", groups=f"{table}:person", **options)
    with raises_about(ConfigError, "groups", "patient"):
        values("test", groups="patient", **options)
    with raises_about(DataError, "missing.csv"):
        values("test", groups=f"{tmp_path / 'missing.csv'}:patient", **options)
    flat = tmp_path / "flat"
    for name in ("a", "b"):
        (flat / name).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.zeros((8, 8), np.uint8)).save(flat / name / f"{number}.png")
    with raises_about(DataError, "sub-folder", "0.png"):
        values("test", flat, fold=1, groups="folder")
