from __future__ import annotations

import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.experiments import Claims, PlannedRun, RunOutcome, grid, run_grid
from torchcaps.experiments.grid import CLAIMS
from torchcaps.train import Run, fit

from .test_claims import foreign
from .test_compare import ListReporter


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


def test_run_of_another_process_is_left(planned, tmp_path):
    foreign(tmp_path / CLAIMS / "run.0")
    assert list(run_grid([planned], tmp_path, seconds, wait=False)) == []
    assert not (tmp_path / "run").exists()


def test_outcome_of_another_process_is_waited_for(planned, tmp_path, monkeypatch):
    run = fit(planned.recipe, tmp_path / "run")
    file, reporter = tmp_path / CLAIMS / "run.0", ListReporter()
    foreign(file)
    # The other process ends while this one waits.
    monkeypatch.setattr(time, "sleep", lambda pause: foreign(file, status="finished"))
    (outcome,) = run_grid([planned], tmp_path, seconds, reporter=reporter)
    assert outcome == RunOutcome(planned, "finished", seconds(run))
    foreign(file, status="failed", error="no memory")
    foreign(tmp_path / CLAIMS / "other.0")
    other = PlannedRun("b", planned.recipe, "other")
    # Somebody is at work and may have tried it just now.
    assert list(run_grid([planned, other], tmp_path, seconds, wait=False)) == [
        RunOutcome(planned, "failed", error="no memory")
    ]


def test_failed_run_is_tried_again_by_the_next_command(planned, tmp_path):
    def fail(run: Run) -> float:
        raise ConfigError("data: expected more, got less")

    assert one(planned, tmp_path, fail).status == "failed"
    assert Claims(tmp_path / CLAIMS).state("run").error == "data: expected more, got less"
    assert one(planned, tmp_path).status == "finished"


class EnoughError(Exception):
    pass


def test_run_of_a_killed_process_is_resumed(planned, tmp_path, monkeypatch):
    run = fit(planned.recipe, tmp_path / "run")
    run.update_record(status="running")
    foreign(tmp_path / CLAIMS / "run.0")
    monkeypatch.setattr(grid, "Claims", partial(Claims, interval=0.05, timeout=0.1))
    sleep, naps = time.sleep, iter(range(20))

    def nap(pause: float) -> None:
        sleep(pause)
        if next(naps, None) is None:
            raise EnoughError

    with run.locked(), monkeypatch.context() as patch:
        # A process that is slow but alive keeps its lock.
        patch.setattr(time, "sleep", nap)
        with pytest.raises(EnoughError):
            list(run_grid([planned], tmp_path, seconds))
    assert not (tmp_path / CLAIMS / "run.1").exists()
    assert one(planned, tmp_path).status == "finished"
    assert json.loads((tmp_path / CLAIMS / "run.1").read_text())["status"] == "finished"


def test_deleted_run_is_made_again(planned, tmp_path):
    one(planned, tmp_path)
    shutil.rmtree(tmp_path / "run")
    assert one(planned, tmp_path).status == "finished"


def test_failed_run_is_tried_again_by_one_process(planned, tmp_path):
    claims, file = tmp_path / CLAIMS, tmp_path / CLAIMS / "run.0"
    foreign(file, status="failed", error="no memory")
    outcomes = run_grid([PlannedRun("b", planned.recipe, "other"), planned], tmp_path, seconds)
    assert next(outcomes).status == "finished"
    # Another process that started at the same time has tried it meanwhile.
    foreign(claims / "run.1", status="failed", error="no disk")
    assert next(outcomes) == RunOutcome(planned, "failed", error="no disk")
    assert not (tmp_path / "run").exists()
