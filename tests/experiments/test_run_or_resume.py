from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.experiments.run_or_resume import check_same_recipe, failure_reason, is_finished, run_or_resume
from torchcaps.train import Run


def never(*args: Any, **options: Any) -> None:
    raise AssertionError("trained again")


def test_finished_run_is_not_trained_again(recipe, tmp_path, monkeypatch):
    path = tmp_path / "run"
    assert not is_finished(path)
    record = run_or_resume(recipe(), path).record
    assert is_finished(path)
    monkeypatch.setattr("torchcaps.train._runner.train_loop", never)
    # Name, description and precision do not matter.
    for same in (recipe(), replace(recipe(), name="other", description="other"), recipe("trainer.precision=64-true")):
        assert run_or_resume(same, path).record == record
    with raises_about(CheckpointError, "folder", str(path), "seed, optim"):
        run_or_resume(recipe("optim.lr=0.5", "seed=1"), path)


def test_relative_paths_are_the_same_recipe(recipe, tmp_path, monkeypatch):
    path = Path(recipe().data.options["path"])
    run = Run.create(recipe(), tmp_path / "run")
    monkeypatch.chdir(path.parent)
    check_same_recipe(run, recipe(f"data.options.path={path.name}"))


def test_failure_reason_is_one_line():
    assert failure_reason(ConfigError("first\nsecond")) == "first"
    assert failure_reason(RuntimeError("")) == "RuntimeError: no message"
