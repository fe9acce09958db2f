from __future__ import annotations

import pytest

from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.train import Run, load_recipe
from torchcaps.train.run import write_metrics


def test_a_new_folder_opens_again(tmp_path):
    run = Run.create(load_recipe("digits", ["seed=7"]), tmp_path / "a")
    run.update_record(status="running", seed=7)
    assert Run.open(tmp_path / "a") == run
    assert run.recipe.seed == run.record["seed"] == 7
    assert run.status == "running"
    assert run.results == run.metrics() == {}
    assert run.pictures.is_dir()


def test_without_a_name_the_folder_has_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (Run.create(load_recipe()) for _ in range(2))
    assert first.path != second.path
    assert first.path.parent.name == "runs"
    assert first.path.name.startswith("digits-")


def test_metrics_come_back(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    write_metrics(run.path, [{"epoch": 1, "val_loss": 0.1}, {"epoch": 2, "val_loss": 0.25}])
    assert run.metrics() == {"epoch": [1, 2], "val_loss": [0.1, 0.25]}


def test_the_data_of_the_recipe(tmp_path):
    assert len(Run.create(load_recipe(), tmp_path / "a").load_data("val")) == 500


def test_a_folder_that_is_taken(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"folder: expected a new or empty folder, got '.*a' \(not empty\)"):
        Run.create(load_recipe(), run.path)
    run.update_record(status="running")
    with pytest.raises(CheckpointError, match=r"got '.*a' \(it holds a run; resume it"):
        Run.create(load_recipe(), run.path)


def test_no_run(tmp_path):
    with pytest.raises(CheckpointError, match=r"run: expected a run folder with recipe.toml and run.json, got '.*'"):
        Run.open(tmp_path)


def test_damaged_files(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    (run.path / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"run: expected JSON, got '.*run.json'"):
        _ = run.record
    (run.path / "recipe.toml").write_text("seed = -1")
    with pytest.raises(ConfigError, match=r"recipe.toml: "):
        Run.open(run.path)


def test_no_model_before_the_end(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    run.update_record(status="stopped")
    with pytest.raises(
        CheckpointError, match=r"run: expected a finished run, got '.*a' \(status 'stopped'; resume it\)"
    ):
        run.load_model()


def test_one_at_a_time(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    with (
        run.locked(),
        pytest.raises(CheckpointError, match="run: expected a folder that nobody trains in"),
        run.locked(),
    ):
        pass
    with run.locked():
        pass
