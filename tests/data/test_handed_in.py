from dataclasses import replace

import numpy as np
import pytest
import torch

from formats import pixels
from torchcaps.data import DATASETS, ImageData, hand_in, load_data
from torchcaps.errors import ConfigError, DataError


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setattr(DATASETS, "_items", dict(DATASETS._items))

    def part(count: int, seed: int) -> ImageData:
        data = ImageData.from_arrays(pixels(count, 12, 12, seed=seed), np.arange(count) % 3)
        return replace(data, meta={"place": torch.arange(count)})

    return part(60, 0), part(9, 1), part(6, 2)


def test_a_tenth_is_held_out(parts):
    train, test, _ = parts
    hand_in("mine", train, test)
    sizes = {split: len(load_data("mine", split)) for split in ("train", "val", "test", "train+val")}
    assert sizes == {"train": 54, "val": 6, "test": 9, "train+val": 60}
    val = load_data("mine", "val")
    assert val.labels.bincount().tolist() == [2, 2, 2]
    assert (val.name, val.split) == ("mine", "val")
    assert torch.equal(train.images[val.meta["place"]], val.images)


def test_a_validation_part_of_ones_own(parts):
    train, test, val = parts
    hand_in("mine", train, test, val=val)
    sizes = {split: len(load_data("mine", split)) for split in ("train", "val", "test", "train+val")}
    assert sizes == {"train": 60, "val": 6, "test": 9, "train+val": 66}
    both = load_data("mine", "train+val")
    assert torch.equal(both.images[60:], val.images)
    assert len(both.meta["place"]) == 66


def test_parts_must_fit_together(parts):
    train, test, _ = parts
    with pytest.raises(
        DataError, match=r"test: expected images \(1, 12, 12\) of 3 classes like those for training, got"
    ):
        hand_in("mine", train, replace(test, class_names=("a", "b", "c")))
    with pytest.raises(ConfigError, match="data set: expected a new name, got 'mnist'"):
        hand_in("mnist", train, test)


def test_a_recipe_can_train_on_it(parts, tmp_path):
    from torchcaps.train import load_recipe, start

    train, test, _ = parts
    hand_in("mine", train, test)
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
    run = start(recipe, tmp_path / "run")
    assert run.status == "finished"
    assert run.record["images"] == {"train": 54, "val": 6, "test": 9}
