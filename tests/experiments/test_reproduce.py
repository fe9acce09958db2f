from __future__ import annotations

import signal
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.experiments import (
    METRICS,
    FigureFile,
    Metric,
    ReproductionResult,
    load_reproduction,
    plan_runs,
    read_json,
    reproduce,
    result_file,
)
from torchcaps.report import CaptionedFigure, FigureContext, FigureEntry
from torchcaps.report.registry import FIGURES
from torchcaps.train import Run, resume
from torchcaps.train._callback import RunCallback
from torchcaps.viz import Figure

from .entries import TINY, write_entry
from .test_compare import ListReporter


class FakeEntry(FigureEntry):
    """A figure without a module."""

    functions: Any

    @property
    def module(self) -> Any:
        return self.functions


def fake_figure(name: str, draw: Any) -> FigureEntry:
    entry = FakeEntry(name, f"The {name} figure", "a figure", compares_runs=True)
    object.__setattr__(entry, "functions", SimpleNamespace(requires=lambda context: None, draw=draw))
    return entry


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace a metric by one that takes no time; return the names of the measured runs."""
    runs: list[str] = []

    def compute(run: Run, progress: Any) -> dict[str, float]:
        runs.append(run.path.name)
        progress(1, 1)
        return {"error": 10.0 + run.recipe.seed}

    monkeypatch.setitem(METRICS._items, "error", Metric(("error",), compute))
    return runs


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Register two figures, of which the second fails; return the seeds of the drawn runs."""
    seeds: list[dict[str, int]] = []

    def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
        seeds.append({label: context.recipe.seed for label, context in contexts.items()})
        return CaptionedFigure(Figure(), "A caption.", "An alt text.")

    def fail(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
        raise ConfigError("runs: expected a decoder, but there is none")

    monkeypatch.setattr(FIGURES, "_items", {"good": fake_figure("good", draw), "bad": fake_figure("bad", fail)})
    return seeds


def saved(folder) -> ReproductionResult:
    return read_json(ReproductionResult, result_file("tiny", folder))


GOOD = FigureFile("figures/tiny-good.png", "A caption.", "An alt text.")


def test_train_measure_and_draw(tmp_path, measured, drawn):
    entry, reporter = load_reproduction(write_entry(tmp_path, figures='["good", "bad"]')), ListReporter()
    result = reproduce(entry, tmp_path / "out", changes=[*TINY, "trainer.precision=64-true"], reporter=reporter)
    assert reporter.texts == [
        "1/3  CNN, seed 0",
        "2/3  Capsules, 1 iteration, seed 0",
        "3/3  CNN, seed 1",
        "drawing good",
        "drawing bad",
    ]
    assert result == saved(tmp_path / "out")
    # Accelerator and precision do not change the experiment.
    assert (result.status, result.changes) == ("finished", list(TINY[:-1]))
    cnn, capsules = result.rows
    error = cnn.columns["error"]
    assert error is not None
    assert (error.mean, error.std, error.count) == (10.5, pytest.approx(0.7071, abs=1e-4), 2)
    assert (cnn.paper, capsules.paper) == ({"error": 0.39}, {})
    assert [run.folder for run in cnn.runs] == [measured[0], measured[2]]
    run = Run.open(tmp_path / "out" / capsules.runs[0].folder)
    assert run.recipe.model.options["routing"] == {"name": "dynamic", "iters": 1}
    assert capsules.parameters == run.record["parameters"]
    assert capsules.recipe["model"]["name"] == "capsnet_small"
    (metrics,) = capsules.finished
    assert metrics.machine == run.record["machine"]
    assert metrics.precision == run.recipe.trainer.precision == "64-true"
    assert (metrics.epochs, metrics.warning) == (1, None)
    # Figures use the first seed of each network.
    assert drawn == [{"CNN": 0, "Capsules, 1 iteration": 0}]
    assert result.figures == {"good": GOOD}
    assert (tmp_path / "out" / GOOD.file).read_bytes().startswith(b"\x89PNG")
    assert result.failed_figures == {"bad": "runs: expected a decoder, but there is none"}


def test_finished_runs_are_not_repeated(tmp_path, measured, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    first = reproduce(entry, tmp_path, changes=TINY, train=["CNN"])
    assert first.status == "partial"
    assert [row.runs[0].status for row in first.rows] == ["finished", "not run"]
    count = len(measured)

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("torchcaps.train._runner.train_loop", never)
    again = reproduce(entry, tmp_path, changes=TINY, train=[])
    assert {**vars(again), "date": ""} == {**vars(first), "date": ""}
    assert len(measured) == count
    reproduce(entry, tmp_path, changes=TINY, train=[], remeasure=True)
    assert len(measured) == 2 * count


def test_figures_remain_during_training(tmp_path, measured, drawn, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, figures='["good"]', seeds="1"))
    assert reproduce(entry, tmp_path, changes=TINY, train=["CNN"]).figures == {"good": GOOD}

    def interrupt(self, trainer, *args):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunCallback, "on_train_batch_end", interrupt)
    assert reproduce(entry, tmp_path, changes=TINY).status == "stopped"
    assert saved(tmp_path).figures == {"good": GOOD}
    (tmp_path / GOOD.file).unlink()
    reproduce(entry, tmp_path, changes=TINY)
    assert saved(tmp_path).figures == {}


def test_missed_target_accuracy(tmp_path, measured):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    result = reproduce(entry, tmp_path, changes=[*TINY, "trainer.target_accuracy=1.5"], train=["CNN"])
    assert str(result.rows[0].finished[0].warning).endswith("below the target of 150.00%")


def test_stop_and_resume(tmp_path, measured, drawn, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, figures='["good"]', seeds="1"))
    after = RunCallback.on_train_batch_end

    def interrupted(self, trainer, *args):
        signal.raise_signal(signal.SIGINT)
        after(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_batch_end", interrupted)
        stopped = reproduce(entry, tmp_path, changes=TINY)
    assert stopped.status == "stopped"
    assert [len(row.runs) for row in stopped.rows] == [1, 0]
    assert drawn == []
    # Without training the run remains unfinished.
    report = reproduce(entry, tmp_path, changes=TINY, train=[])
    assert (report.status, report.rows[0].runs[0].status) == ("partial", "not run")
    assert reproduce(entry, tmp_path, changes=TINY, train=["CNN"]).rows[0].runs[0].status == "finished"
    assert drawn == [{"CNN": 0}]


def test_failing_network_is_reported(tmp_path, measured):
    changes = '["model.name=cnn_small", "model.options={depth = 9}"]'
    entry = load_reproduction(write_entry(tmp_path, seeds="1", changes=changes))
    result = reproduce(entry, tmp_path, changes=TINY)
    cnn, capsules = (row.runs[0] for row in result.rows)
    assert "'depth'" in str(cnn.error)
    assert capsules.status == "finished"
    assert result.status == "partial"


def test_extended_run_is_another_recipe(tmp_path, measured):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    reproduce(entry, tmp_path, changes=TINY, train=["CNN"])
    resume(tmp_path / plan_runs(entry, TINY)[0].folder, epochs=2)
    with raises_about(CheckpointError, "folder", "digits-", "trainer"):
        reproduce(entry, tmp_path, changes=TINY, train=[])
