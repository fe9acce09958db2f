from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

import torchcaps as tc
from raising import raises_about
from torchcaps import config, train
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.models import pretrained
from torchcaps.train import Run, load_recipe

ROOT = Path(__file__).parents[2]
LIMITS = ["Light digits on black."]
# Seconds, and good enough that rounding the weights changes next to nothing.
QUICK = ("model.name=cnn_small", "model.options={}", "trainer.epochs=2", "data.epoch_size=1500", "optim.warmup=0")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ship_weights", ROOT / "scripts" / "ship_weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = load_recipe("digits", [*QUICK, "trainer.accelerator=cpu"])
    return train.fit(recipe, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    """A copy to change."""
    return Run.open(shutil.copytree(trained.path, tmp_path / "run"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pretrained"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    monkeypatch.setattr(pretrained, "CLONE", tmp_path / "weights")
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    return folder


@pytest.mark.parametrize("half", [False, True])
def test_run_becomes_weights_with_card(script: ModuleType, trained: Run, folder: Path, half: bool) -> None:
    card = script.ship(trained, "digits", LIMITS, half=half)
    assert card == tc.pretrained_card("digits")
    record, results = trained.record, trained.results
    assert (card.model, card.options, card.data) == ("cnn_small", {}, {"name": "digits", "options": {}})
    assert (card.image_shape, card.num_classes, card.num_labels) == ((1, 28, 28), 10, 1)
    assert (card.commit, card.seed, card.epochs) == (record["commit"], record["seed"], 2)
    assert (card.parameters, card.seconds) == (record["parameters"], record["seconds"])
    assert (card.data_licence, card.research_only, card.limits) == ("CC BY-SA 3.0", False, tuple(LIMITS))
    assert card.test_accuracy == pytest.approx(results["test_accuracy"], abs=0 if not half else 0.001)
    # All of the embedded digits are the first thousand, and they are what a network on digits is tested on.
    assert card.test_accuracy == card.quick_accuracy == card.embedded_accuracy
    assert (card.test_images, card.quick_images) == (1000, 1000)
    assert train.recipe.parse_recipe(config.dump(card.recipe)) == trained.recipe
    stored = load_file(folder / "digits.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16 if half else torch.float32}
    model, original = tc.create_model("cnn_small", pretrained="digits"), trained.load_model()
    for value, other in zip(model.state_dict().values(), original.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-3 if half else 0, atol=1e-4 if half else 0)


def test_command_prints_total_size(
    script: ModuleType, trained: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main([str(trained.path), "digits", "--half", "--licence", "for research use", "--limits", "One.", "Two."])
    card = tc.pretrained_card("digits")
    assert (card.data_licence, card.research_only, card.limits) == ("for research use", True, ("One.", "Two."))
    # Outside the package, which has the card.
    assert not (folder / "digits.safetensors").exists()
    size = (folder.parent / "weights" / "digits.safetensors").stat().st_size
    begin = f"digits: cnn_small on digits, test accuracy {card.test_accuracy:.2%}; {size / 1e6:.2f} MB, "
    assert capsys.readouterr().out.startswith(begin + "all together ")


def test_unfinished_run_is_refused(script: ModuleType, run: Run, folder: Path) -> None:
    run.update_record(status="stopped")
    with raises_about(CheckpointError, "run:", run.path, "'stopped'"):
        script.ship(run, "digits", LIMITS)
    assert list(folder.iterdir()) == []


def test_foreign_weights_are_refused(script: ModuleType, run: Run, folder: Path) -> None:
    accuracy = run.results["test_accuracy"]
    run.update_record(results={**run.results, "test_accuracy": accuracy - 0.002})
    with raises_about(CheckpointError, "weights:", f"{accuracy - 0.002:.2%}", f"{accuracy:.2%}"):
        script.ship(run, "digits", LIMITS)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["MNIST", "../mnist", "my digits"])
def test_unsafe_name_is_refused(script: ModuleType, trained: Run, name: str) -> None:
    with raises_about(ConfigError, "name:", f"'{name}'"):
        script.ship(trained, name, LIMITS)


@pytest.mark.parametrize("limits", [[], [""]])
def test_limitations_are_required(script: ModuleType, trained: Run, limits: list[str]) -> None:
    with raises_about(ConfigError, "limits:", "at least one sentence"):
        script.ship(trained, "digits", limits)


def test_private_data_are_refused(script: ModuleType, run: Run) -> None:
    text = (run.path / "recipe.toml").read_text()
    begin, found, end = text.partition("[data.options]\n")
    assert found
    (run.path / "recipe.toml").write_text(f"{begin}{found}path = {json.dumps('my/pictures')}\n{end}")
    with raises_about(ConfigError, "run:", run.path):
        script.ship(Run.open(run.path), "digits", LIMITS)
