"""The loggers that a recipe names: what they write is read back with their own packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import ConfigError, MissingPackageError
from torchcaps.train import fit, load_recipe, resume

from .conftest import MakeRecipe
from .test_runner import CNN, Killed, kill_at


def test_tensorboard(recipe: MakeRecipe, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = fit(recipe(*CNN, "trainer.logger=tensorboard"), tmp_path / "run")
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    metrics = run.metrics()
    for name in ("train_loss", "val_loss", "val_accuracy", "lr", "gradient_norm"):
        logged = events.Scalars(name)
        assert [event.value for event in logged] == pytest.approx(metrics[name])
        # Lightning counts steps from 0.
        assert [event.step + 1 for event in logged] == metrics["step"]


# The packages of MLflow announce changes of their own.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_mlflow_continues_a_run(recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    both = recipe(*CNN, "trainer.logger=mlflow,csv")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 5)
        with pytest.raises(Killed):
            fit(both, tmp_path / "run")
    run = resume(tmp_path / "run")
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (experiment,) = [each for each in client.search_experiments() if each.name == both.name]
    (logged,) = client.search_runs([experiment.experiment_id])
    assert logged.info.run_id == run.record["mlflow_run"]
    assert logged.info.status == "FINISHED"
    assert logged.data.params["model.name"] == "cnn_small"
    assert [each.value for each in client.get_metric_history(logged.info.run_id, "val_loss")] == pytest.approx(
        run.metrics()["val_loss"]
    )
    assert len(list((run.path / "csv").glob("version_*/metrics.csv"))) == 2


def test_loggers_do_not_change_the_training(recipe: MakeRecipe, tmp_path: Path) -> None:
    plain, logged = (fit(recipe(*CNN, *more), tmp_path / str(len(more))) for more in ([], ['trainer.logger=["csv"]']))
    assert plain.weights.read_bytes() == logged.weights.read_bytes()


@pytest.mark.parametrize("value", ["tensorbord", "[1]", "csv,tensorbord"])
def test_unknown_logger(value: str) -> None:
    with raises_about(ConfigError, "trainer.logger:", value.strip("[]").split(",")[-1]):
        load_recipe("digits", [f"trainer.logger={value}"])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_missing_package_is_one_sentence(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # pyright: ignore[reportArgumentType]
    with raises_about(MissingPackageError, f"{name}:", "torchcaps[loggers]"):
        fit(recipe(*CNN, f"trainer.logger={name}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_wandb_gets_the_run(recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package needs an account to show anything: what Lightning is given is checked."""
    pytest.importorskip("wandb")
    from torchcaps.train._loggers import _make
    from torchcaps.train.run import Run

    logger: Any = _make("wandb", Run.create(recipe("trainer.logger=wandb"), tmp_path / "run"))
    assert (logger._wandb_init["id"], logger._wandb_init["resume"]) == ("run", "allow")
