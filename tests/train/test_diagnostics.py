from __future__ import annotations

import math

import pytest

from torchcaps.train import fit, resume
from torchcaps.train._callback import RunCallback
from torchcaps.train._tables import write_metrics
from torchcaps.train.run import Run


def test_training_is_the_same_with_and_without(recipe, tmp_path, monkeypatch):
    run = fit(recipe("trainer.epochs=2"), tmp_path / "with")
    assert {"entropy", "dead", "gradient_norm"} <= set(run.metrics())
    monkeypatch.setattr("torchcaps.train._loop.EpochDiagnostics", lambda *args: None)
    other = fit(recipe("trainer.epochs=2"), tmp_path / "without")
    assert "entropy" not in other.metrics()
    assert other.diagnostics() == {}
    assert not (other.path / "diagnostics.csv").exists()
    assert other.weights.read_bytes() == run.weights.read_bytes()


def test_run_saves_diagnostics_per_epoch(recipe, tmp_path):
    run = fit(recipe("trainer.epochs=2"), tmp_path / "run")
    table = run.diagnostics()
    assert list(table) == ["epoch", "layer", "iteration", "measure", "value"]
    assert set(table["epoch"]) == {1, 2}
    rows = list(zip(*table.values(), strict=True))
    last = [value for _, layer, step, measure, value in rows if (layer, step, measure) == ("head", 3, "entropy")]
    assert last == run.metrics()["entropy"]
    for epoch, total in enumerate(run.metrics()["gradient_norm"], 1):
        norms = [value for at, _, _, measure, value in rows if (at, measure) == (epoch, "gradient_norm")]
        assert math.hypot(*norms) == pytest.approx(total)


def test_killed_run_has_same_diagnostics(recipe, tmp_path, monkeypatch):
    whole = fit(recipe(), tmp_path / "whole")
    after = RunCallback.on_train_batch_end

    def broken(self, trainer, *args):
        if trainer.global_step == 8:
            raise KeyError("killed")
        after(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_batch_end", broken)
        with pytest.raises(KeyError, match="killed"):
            fit(recipe(), tmp_path / "run")
    # What is written then comes from the checkpoint, not from the file.
    assert set(Run.open(tmp_path / "run").diagnostics()["epoch"]) == {1, 2}
    (tmp_path / "run" / "diagnostics.csv").unlink()
    run = resume(tmp_path / "run")
    assert set(run.diagnostics()["epoch"]) == {1, 2, 3}
    assert (run.path / "diagnostics.csv").read_bytes() == (whole.path / "diagnostics.csv").read_bytes()


def test_missing_metrics_are_nan(recipe, tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "val_loss": 0.5}, {"epoch": 2, "val_loss": 0.4, "entropy": 0.9}])
    first, second = Run(tmp_path, recipe()).metrics()["entropy"]
    assert first != first
    assert second == 0.9
