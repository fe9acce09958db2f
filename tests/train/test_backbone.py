"""Training of backbones and unbalanced data: parameter groups, freezing, class weights, patience; all resumable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.models import create_model
from torchcaps.models._backbones import make_backbone
from torchcaps.train import Run, fit, resume
from torchcaps.train.module import CapsModule, parameter_groups, with_class_weights

from .test_runner import Killed, kill_at, same_rows

RESNET = ["model.name=backbone_capsnet", "model.options={freeze = 1, backbone_lr = 0.0005}", "loss.reconstruction=0"]
# Images from disk, by two processes, with every kind of augmentation for grey images.
LOADING = [
    "data.options.memory_mb=0",
    "data.workers=2",
    "data.sampler=balanced",
    "data.augment.resized_crop=0.4",
    "data.augment.erase=0.3",
    "data.augment.mixup=0.3",
    "loss.options.weight=balanced",
]


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 4, 7])
def test_a_killed_run_with_a_frozen_backbone_and_images_on_disk_ends_the_same(recipe, tmp_path, monkeypatch, step):
    whole = fit(recipe(*RESNET, *LOADING), tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", step)
        with pytest.raises(Killed):
            fit(recipe(*RESNET, *LOADING), tmp_path / "run")
    run = resume(tmp_path / "run")
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert same_rows(run, whole)


def test_images_on_disk_and_workers_change_nothing(recipe, tmp_path):
    plain, disk = (
        ["loss.options.weight=balanced"],
        ["data.options.memory_mb=0", "data.workers=2", "data.sampler=shuffle"],
    )
    ours = fit(recipe(*RESNET, *plain, "trainer.epochs=1"), tmp_path / "plain")
    theirs = fit(recipe(*RESNET, *plain, *disk, "trainer.epochs=1"), tmp_path / "disk")
    assert ours.weights.read_bytes() == theirs.weights.read_bytes()


def test_a_backbone_is_frozen_and_then_trained(recipe, tmp_path, monkeypatch):
    seen: list[dict[str, torch.Tensor]] = []
    whole_step = CapsModule.optimizer_step

    def watched(self, *args, **options):
        whole_step(self, *args, **options)
        seen.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})

    monkeypatch.setattr(CapsModule, "optimizer_step", watched)
    fit(recipe(*RESNET, "trainer.epochs=2"), tmp_path / "run")
    stem = [name for name in seen[0] if name.startswith("stem.")]
    assert len(seen) == 6
    # Three steps of the first epoch; the statistics of batch normalisation stay as well.
    for name in stem:
        assert torch.equal(seen[0][name], seen[2][name]), name
    assert all(not torch.equal(seen[2][name], seen[5][name]) for name in stem)
    assert not torch.equal(seen[0]["head.weight"], seen[2]["head.weight"])


def test_parameter_groups():
    model = create_model("backbone_capsnet", (1, 20, 20), 3, backbone_lr=0.1)
    head, stem = parameter_groups(model)
    assert stem["lr"] == 0.1
    assert {id(weight) for weight in stem["params"]} == {id(weight) for weight in model.stem.parameters()}
    assert len(head["params"]) + len(stem["params"]) == len(list(model.parameters()))
    plain = create_model("backbone_capsnet", (1, 20, 20), 3)
    assert [id(weight) for weight in parameter_groups(plain)] == [id(weight) for weight in plain.parameters()]


def test_a_run_starts_from_the_weights_of_a_backbone_and_does_not_need_them_later(recipe, tmp_path):
    torch.manual_seed(7)
    file = tmp_path / "resnet8.safetensors"
    source = make_backbone("resnet8", (1, 20, 20)).state_dict()
    save_file(source, file)
    changes = ["model.name=backbone_linear", f"model.options={{weights = '{file}', freeze = 9}}"]
    run = fit(recipe(*changes, "trainer.epochs=1"), tmp_path / "run")
    stored = load_file(run.weights)
    assert all(torch.equal(stored[f"stem.{name}"], tensor) for name, tensor in source.items())
    file.unlink()
    assert Run.open(run.path).load_model().freeze == 9
    with raises_about(CheckpointError, "weights:", file):
        fit(recipe(*changes), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_balanced_weights(recipe, pictures: Path):
    data = load_data("folder", "train", path=pictures)
    data = data.subset([*range(16), *range(16, 20), *range(32, 40)])
    made = with_class_weights(recipe("loss.options.weight=balanced"), data)
    weights = made.loss.options["weight"]
    assert weights == pytest.approx([28 / (3 * count) for count in (16, 4, 8)])
    assert sum(weight * count for weight, count in zip(weights, (16, 4, 8), strict=True)) == pytest.approx(28)
    given = recipe("loss.options.weight=[1, 2, 3]")
    assert with_class_weights(given, data) is given


@pytest.mark.parametrize("weight", ["even", "[1, 2]", "[1, 2, -1]"])
def test_wrong_weights_are_found_before_there_is_a_folder(recipe, tmp_path, weight):
    with pytest.raises(Exception, match="weight: expected") as caught:
        fit(recipe(f"loss.options.weight={weight}"), tmp_path / "run")
    assert type(caught.value).__module__ == "torchcaps.errors"
    assert not (tmp_path / "run").exists()


def test_patience_ends_a_run_and_its_resumption(recipe, tmp_path):
    # A learning rate that changes nothing: the first epoch stays the best.
    changes = ["trainer.epochs=9", "trainer.patience=2", "optim.lr=1e-30"]
    run = fit(recipe(*changes), tmp_path / "run")
    assert run.status == "finished"
    assert run.metrics()["epoch"] == [1, 2, 3]
    assert run.results["best"]["epoch"] == 1
    assert resume(run.path).results == run.results


def test_mixup_with_a_decoder(recipe, tmp_path):
    with raises_about(ConfigError, "data.augment.mixup", "got 0.2"):
        fit(recipe("data.augment.mixup=0.2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
