"""Loading in own code: a run, a model by run, file or name, and predictions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import torchcaps as tc
from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, ShapeError
from torchcaps.models import create_model, load_described, read_description
from torchcaps.nn import Scores
from torchcaps.train import Run, fit, load_model, load_recipe, load_run, predict_images

CHANGES = ["trainer.epochs=1", "data.epoch_size=64", "trainer.accelerator=cpu", "optim.warmup=0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = load_recipe("digits", [*CHANGES, "model.name=cnn_small", "model.options={}"])
    return fit(recipe, tmp_path_factory.mktemp("runs") / "cnn", progress=False)


def test_run_predicts_an_image(run: Run) -> None:
    data = tc.load_data("digits", "test")
    opened = load_run(run.path)
    found = opened.predict(data[0][0])
    assert set(found.probabilities) == set(map(str, range(10)))
    assert found.probability == max(found.probabilities.values()) == found.probabilities[found.label]
    images = torch.stack([data[place][0] for place in range(3)])
    many = opened.predict_many(images)
    # One image is vectorised over the entries of its poses, several over the images: other roundings.
    assert many[0].label == found.label
    assert many[0].activations == pytest.approx(found.activations, rel=1e-5)
    shares = Scores(opened.load_model())(images)
    torch.testing.assert_close(torch.tensor([list(each.probabilities.values()) for each in many]), shares)
    assert opened.predict_many([]) == []


def test_every_source_gives_the_same_model(run: Run) -> None:
    images = torch.rand(2, 1, 28, 28)
    expected = run.load_model()(images).activations
    for source in (run.path, str(run.path), run.weights):
        model = load_model(source)
        assert not model.training
        assert torch.equal(model(images).activations, expected)
    assert load_model(run.weights).temperature == run.load_model().temperature
    assert read_description(run.weights).class_names == tuple(map(str, range(10)))
    assert load_model("mnist_cnn").num_classes == 10


def test_weights_of_nan_are_refused(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    with safe_open(run.weights, "pt") as file:
        metadata = file.metadata()
    weights = load_file(run.weights)
    weights[next(iter(weights))].fill_(float("nan"))
    save_file(weights, copy / "weights.safetensors", metadata)
    with raises_about(CheckpointError, "weights", "NaN"):
        Run.open(copy).load_model()


@pytest.mark.parametrize(
    ("name", "options", "about"),
    [
        ("residual_capsnet", {"blocks": 2**31}, "blocks"),
        ("branched_capsnet", {"branches": 2**31}, "branches"),
        ("complex_net", {"widths": [1] * 201}, "widths"),
        ("decoupled_net", {"widths": [1] * 201}, "widths"),
        ("matrix_capsnet_released", {"iters": 2**31}, "iters"),
        ("capsnet_small", {"routing": {"name": "dynamic", "iters": 2**31}}, "iters"),
        ("kuramoto_net", {"iters": 2**31}, "iters"),
    ],
)
def test_description_that_would_take_for_ever_is_refused(
    tmp_path: Path, name: str, options: dict[str, object], about: str
) -> None:
    table = {"name": name, "options": options, "image_shape": [1, 28, 28], "class_names": ["a", "b"], "num_labels": 1}
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors", {"torchcaps": json.dumps(table)})
    with raises_about(CheckpointError, tmp_path / "a.safetensors", about):
        load_described(tmp_path / "a.safetensors")


@pytest.mark.parametrize("source", ["none", "none.safetensors", "runs/none"])
def test_unknown_source_is_refused(source: str) -> None:
    with raises_about(CheckpointError, source):
        load_model(source)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "no_such_model"},
        {"image_shape": [1, 28]},
        {"image_shape": [1, 10**6, 10**6]},
        {"class_names": ["a"] * 10**5},
        {"class_names": []},
        {"options": {"unknown": 1}},
        {"options": 3},
        {"num_labels": 99},
    ],
    ids=str,
)
def test_wrong_description_is_refused(change: dict[str, object], run: Run, tmp_path: Path) -> None:
    table = {**read_description(run.weights)._asdict(), **change}
    file = tmp_path / "weights.safetensors"
    save_file(load_file(run.weights), file, {"torchcaps": json.dumps(table)})
    with raises_about(CheckpointError, "weights", file):
        load_described(file)


@pytest.mark.parametrize("metadata", [None, {"torchcaps": "["}, {"torchcaps": "[" * 10**5}, {"torchcaps": "3"}])
def test_file_without_description_is_refused(metadata: dict[str, str] | None, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(load_file(run.weights), file, metadata)
    with raises_about(CheckpointError, "weights", file):
        load_described(file)


def test_wrong_images_are_refused(run: Run) -> None:
    with raises_about(ShapeError, "images", "uint8"):
        run.predict(torch.zeros(1, 28, 28, dtype=torch.uint8))
    with raises_about(ShapeError, "images", (1, 3, 28, 28)):
        run.predict(torch.zeros(3, 28, 28))
    with raises_about(ConfigError, "model", "TransformingAutoencoder"):
        predict_images(create_model("transforming_autoencoder"), ["a"], torch.zeros(1, 1, 28, 28))
