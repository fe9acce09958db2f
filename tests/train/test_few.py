from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import ConfigError
from torchcaps.train import Run, fit, load_recipe
from torchcaps.train.few import few_per_class
from torchcaps.train.lr_finder import find_lr


def test_seed_chooses_the_images():
    data = load_data("digits", "train")
    first, second = (few_per_class(data, "train", load_recipe("digits", ["per_class=7", f"seed={k}"])) for k in (0, 1))
    assert first.labels.bincount().tolist() == [7] * 10
    assert not torch.equal(first.images, second.images)
    again = few_per_class(data, "train", load_recipe("digits", ["per_class=7"]))
    assert torch.equal(again.images, first.images)
    assert few_per_class(data, "train", load_recipe("digits")) is data
    assert few_per_class(data, "val", load_recipe("digits", ["per_class=7"])) is data


@pytest.mark.parametrize(("recipe", "reason"), [("digits", "per_class"), ("multimnist", "one label")])
def test_too_many_images_or_labels(recipe, reason):
    changes = ["data.per_class=9999", *(["data.options.source=digits"] if recipe == "multimnist" else [])]
    changed = load_recipe(recipe, changes)
    with raises_about(ConfigError, "per_class", reason):
        few_per_class(load_data(changed.data.name, "train", **changed.data.options), "train", changed)


def test_run_is_trained_on_few_images(tmp_path):
    changes = [
        "data.per_class=2",
        "trainer.epochs=1",
        "data.epoch_size=40",
        "data.batch_size=20",
        "model.name=cnn_small",
        "model.options={}",
    ]
    run = fit(load_recipe("digits", changes), tmp_path / "run")
    assert run.record["images"] == {"train": 20, "val": 500, "test": 1000}
    found = Run.open(run.path).load_data("train")
    assert found.labels.bincount().tolist() == [2] * 10
    assert find_lr(run.recipe, steps=30).lr > 0
