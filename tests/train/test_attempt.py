from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.train import Run, start
from torchcaps.train._attempt import attempt, check_same, reason


def seconds(run: Run) -> dict[str, Any]:
    return {"seconds": run.record["seconds"]}


def test_started_once_and_taken_as_it_is_then(recipe, tmp_path, monkeypatch):
    first = attempt(recipe(), tmp_path / "run", seconds)
    assert first["status"] == "finished"

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr("torchcaps.train._start.fit", never)
    assert attempt(recipe(), tmp_path / "run", seconds) == first
    # Another name is not another recipe.
    renamed = replace(recipe(), name="other", description="other")
    assert attempt(renamed, tmp_path / "run", seconds) == first
    # Nor is one that would be computed in another precision.
    assert attempt(recipe("trainer.precision=64-true"), tmp_path / "run", seconds) == first
    words = r"folder: expected a run of the same recipe, got '.*run' with another one \(seed, optim differs\)"
    with pytest.raises(CheckpointError, match=words):
        attempt(recipe("optim.lr=0.5", "seed=1"), tmp_path / "run", seconds)


def test_the_same_from_any_folder(recipe, tmp_path, monkeypatch):
    path = Path(recipe().data.options["path"])
    run = Run.create(recipe(), tmp_path / "run")
    monkeypatch.chdir(path.parent)
    check_same(run, recipe(f"data.options.path={path.name}"))


def test_a_measure_that_fails_is_told(recipe, tmp_path):
    def fail(run: Run) -> dict[str, Any]:
        raise ConfigError("data: expected more, got less")

    failed = {"status": "failed", "error": "data: expected more, got less"}
    assert attempt(recipe("trainer.epochs=1"), tmp_path / "run", fail) == failed
    assert Run.open(tmp_path / "run").status == "finished"


def test_a_run_that_somebody_trains_in_is_told(recipe, tmp_path):
    run = start(recipe("trainer.epochs=1"), tmp_path / "run")
    run.update_record(status="running")
    with run.locked():
        row = attempt(run.recipe, run.path, seconds)
    assert row["error"].startswith("run: expected a folder that nobody trains in, got")


def test_reasons_in_one_line():
    assert reason(ConfigError("first\nsecond")) == "first"
    assert reason(RuntimeError("")) == "RuntimeError: no message"
