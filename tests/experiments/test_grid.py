from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.experiments import PlannedRun, RunOutcome, run_grid
from torchcaps.train import Run, fit


def seconds(run: Run) -> float:
    return run.record["seconds"]


def one(planned: PlannedRun, folder: Path, measure: Any = seconds, **options: Any) -> RunOutcome[Any]:
    (outcome,) = run_grid([planned], folder, measure, **options)
    return outcome


@pytest.fixture
def planned(recipe) -> PlannedRun:
    return PlannedRun("a", recipe("trainer.epochs=1"), "run")


def test_outcome_has_metrics(planned, tmp_path):
    outcome = one(planned, tmp_path)
    assert outcome == RunOutcome(planned, "finished", seconds(Run.open(tmp_path / "run")))


def test_failing_measure_is_reported(planned, tmp_path):
    def fail(run: Run) -> float:
        raise ConfigError("data: expected more, got less")

    assert one(planned, tmp_path, fail) == RunOutcome(planned, "failed", error="data: expected more, got less")
    assert Run.open(tmp_path / "run").status == "finished"


def test_interrupted_measure_stops(planned, tmp_path):
    def interrupt(run: Run) -> float:
        raise KeyboardInterrupt

    outcomes = list(run_grid([planned, planned], tmp_path, interrupt))
    assert outcomes == [RunOutcome(planned, "stopped")]


def test_locked_run_is_reported(planned, tmp_path):
    run = fit(planned.recipe, tmp_path / "run")
    run.update_record(status="running")
    with run.locked():
        outcome = one(planned, tmp_path)
    assert outcome.status == "failed"
    assert str(run.path) in str(outcome.error)


def test_only_chosen_labels_are_trained(planned, tmp_path):
    assert one(planned, tmp_path, train=[]) == RunOutcome(planned, "not run")
    assert one(planned, tmp_path, train=["a"]).status == "finished"
    assert one(planned, tmp_path, train=[]).status == "finished"


def test_folder_of_another_recipe(planned, recipe, tmp_path):
    one(planned, tmp_path)
    with raises_about(CheckpointError, "folder", "run", "optim"):
        one(PlannedRun("a", recipe("trainer.epochs=1", "optim.lr=0.5"), "run"), tmp_path)
