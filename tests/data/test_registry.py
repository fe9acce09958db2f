import pytest
import torch

import torchcaps as tc
from formats import pixels
from fresh import run_fresh
from raising import raises_about
from torchcaps.data import DATASETS, SPLITS, InMemoryDataset, load_data, register_data
from torchcaps.errors import ConfigError, DataError, UnknownNameError


def test_top_level_names():
    assert tc.list_data("digit*") == ["digit_pairs", "digits"]
    assert len(tc.load_data("digits", "val")) == 500


def test_default_split():
    assert tc.load_data("digits").split == "train"


@pytest.mark.parametrize("name", DATASETS.names())
def test_entry_is_described(name):
    entry = DATASETS[name]
    assert entry.description
    assert entry.source
    assert entry.licence
    assert "\n" not in entry.description
    assert set(SPLITS) <= set(entry.splits)


def test_unknown_name():
    with raises_about(UnknownNameError, "data set", "'mnits'", "'mnist'"):
        tc.load_data("mnits")


def test_unknown_split():
    with raises_about(UnknownNameError, "split", "'tets'", "'digits'", "'test'"):
        tc.load_data("digits", "tets")


def test_unknown_option():
    with raises_about(ConfigError, "option", "'val_sise'", "'mnist'", "'val_size'"):
        tc.load_data("mnist", val_sise=3)


def test_split_is_not_an_option():
    assert "split" not in DATASETS["mnist"].options


def test_missing_option():
    with raises_about(ConfigError, "path", "'folder'", "not set"):
        tc.load_data("folder")


def test_loading_twice():
    first, second = tc.load_data("digits", "val"), tc.load_data("digits", "val")
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_no_slow_imports():
    code = "import sys, torchcaps.data; print({'lightning', 'matplotlib', 'scipy', 'PIL'} & set(sys.modules))"
    assert run_fresh(code).stdout == "set()\n"


@pytest.fixture
def splits(monkeypatch):
    monkeypatch.setattr(DATASETS, "_items", dict(DATASETS._items))

    def make(count: int, seed: int) -> InMemoryDataset:
        images, labels = torch.from_numpy(pixels(count, 1, 12, 12, seed=seed)), torch.arange(count) % 3
        return InMemoryDataset(
            "arrays", "train", images, labels, tuple("012"), "a test", {"index": torch.arange(count)}
        )

    return make(60, 0), make(9, 1), make(6, 2)


def test_register_holds_out_a_tenth(splits):
    train, test, _ = splits
    register_data("mine", train, test)
    sizes = {split: len(load_data("mine", split)) for split in ("train", "val", "test", "train+val")}
    assert sizes == {"train": 54, "val": 6, "test": 9, "train+val": 60}
    val = load_data("mine", "val")
    assert val.labels.bincount().tolist() == [2, 2, 2]
    assert (val.name, val.split) == ("mine", "val")
    assert torch.equal(train.images[val.meta["index"]], val.images)


def test_register_with_validation_split(splits):
    train, test, val = splits
    register_data("mine", train, test, val=val)
    sizes = {split: len(load_data("mine", split)) for split in ("train", "val", "test", "train+val")}
    assert sizes == {"train": 60, "val": 6, "test": 9, "train+val": 66}
    both = load_data("mine", "train+val")
    assert torch.equal(both.images[60:], val.images)
    assert len(both.meta["index"]) == 66


def test_register_other_classes_or_shape(splits):
    train, test, _ = splits
    others = InMemoryDataset("arrays", "test", test.images, test.labels, ("a", "b", "c"), "a test")
    with raises_about(DataError, "test", "('a', 'b', 'c')"):
        register_data("mine", train, others)
    with raises_about(DataError, "test", (1, 12, 12), (1, 8, 8)):
        register_data("mine", train, test.cropped(8))
    with raises_about(ConfigError, "data set", "'mnist'"):
        register_data("mnist", train, test)


def test_train_on_registered_data(splits, tmp_path):
    from torchcaps.train import fit, load_recipe

    train, test, _ = splits
    register_data("mine", train, test)
    recipe = load_recipe(
        "digits",
        [
            "data.name=mine",
            "data.options={}",
            "data.batch_size=16",
            "model.name=cnn_small",
            "model.options={}",
            "optim.warmup=0",
            "trainer.epochs=1",
            "trainer.accelerator=cpu",
        ],
    )
    run = fit(recipe, tmp_path / "run")
    assert run.status == "finished"
    assert run.record["images"] == {"train": 54, "val": 6, "test": 9}


def test_digits_without_pillow():
    code = "import sys; sys.modules['PIL'] = None; import torchcaps as tc; print(len(tc.load_data('digits', 'test')))"
    assert run_fresh(code).stdout == "1000\n"
