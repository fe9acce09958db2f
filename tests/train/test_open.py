"""Training that is open: callbacks, loggers and options of Lightning, own trainers, own datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

import torchcaps as tc
from raising import raises_about
from torchcaps.errors import ConfigError, DataError, TorchcapsError
from torchcaps.train import CapsModule, Run, fit, resume
from torchcaps.train._loop import quiet
from torchcaps.train.own_data import DatasetView

from .conftest import MakeRecipe
from .test_runner import CNN, Killed, same_rows

METRICS = {"train_loss", "train_accuracy", "val_loss", "val_accuracy"}


class Killer(Callback):
    """Breaks off after a step, as a kill does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step:
            raise Killed


class Seen(Callback):
    """Records the metrics that a callback finds at the end of each epoch."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.rows.append({name: value.item() for name, value in trainer.callback_metrics.items()})


# Lightning's advice on a machine of many cores.
@pytest.mark.filterwarnings("ignore:.*num_workers")
def test_module_in_own_trainer_logs_metrics(tmp_path: Path) -> None:
    data = tc.load_data("digits", "val").subset(range(64))
    module = CapsModule(tc.create_model("cnn_small"))
    seen, best = Seen(), ModelCheckpoint(tmp_path, monitor="val_loss")
    with quiet():
        trainer = Trainer(
            max_epochs=2, accelerator="cpu", callbacks=[seen, best, EarlyStopping("train_loss")], logger=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
            log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(module, DataLoader(data, batch_size=16), DataLoader(data, batch_size=24))
    assert [set(row) for row in seen.rows] == [METRICS, METRICS]
    assert best.best_model_score is not None
    assert best.best_model_score.item() == pytest.approx(min(row["val_loss"] for row in seen.rows))
    with torch.no_grad():
        capsules = module.eval().model(torch.stack([image for image, _ in data]))
    assert seen.rows[-1]["val_loss"] == pytest.approx(module.loss(capsules, data.labels).item(), rel=1e-4)
    assert trainer.global_step == 8


def test_logged_metrics_are_those_of_the_run(recipe: MakeRecipe, tmp_path: Path) -> None:
    seen = Seen()
    run = fit(recipe(), tmp_path / "run", callbacks=seen)
    names = {*METRICS, "lr", "entropy", "dead", "gradient_norm"}
    assert [set(row) for row in seen.rows] == [names] * 3
    for name in names:
        assert [row[name] for row in seen.rows] == pytest.approx(run.metrics()[name])


def test_early_stopping_and_model_checkpoint(recipe: MakeRecipe, tmp_path: Path) -> None:
    # No loss falls by 1e6: the second epoch is the last.
    def callbacks() -> list[Callback]:
        stopping = EarlyStopping("val_loss", min_delta=1e6, patience=1)
        return [stopping, ModelCheckpoint(tmp_path / "best", monitor="val_accuracy", mode="max")]

    run = fit(recipe(*CNN), tmp_path / "run", callbacks=callbacks())
    assert run.status == "finished"
    assert run.metrics()["epoch"] == [1, 2]
    assert len(list((tmp_path / "best").glob("*.ckpt"))) == 1
    # It has ended: nothing is left to resume, with or without the callbacks.
    before = run.weights.stat().st_mtime_ns
    assert resume(run.path).weights.stat().st_mtime_ns == before


def test_state_of_callbacks_is_resumed(recipe: MakeRecipe, tmp_path: Path) -> None:
    def stopping() -> EarlyStopping:
        return EarlyStopping("val_loss", min_delta=1e6, patience=2)

    whole = fit(recipe(*CNN, "trainer.epochs=9"), tmp_path / "whole", callbacks=stopping())
    assert whole.metrics()["epoch"] == [1, 2, 3]
    with pytest.raises(Killed):
        fit(recipe(*CNN, "trainer.epochs=9"), tmp_path / "run", callbacks=[stopping(), Killer(7)])
    run = resume(tmp_path / "run", callbacks=stopping())
    assert same_rows(run, whole)
    assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_state_that_cannot_be_read_again_is_refused(recipe: MakeRecipe, tmp_path: Path) -> None:
    class Stateful(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"path": tmp_path}

    with raises_about(ConfigError, "callbacks", "Stateful", "PosixPath"):
        fit(recipe(*CNN), tmp_path / "run", callbacks=Stateful())


def test_optuna_prunes_a_run(recipe: MakeRecipe, tmp_path: Path) -> None:
    class Pruning(Callback):
        def __init__(self, trial: optuna.Trial) -> None:
            self.trial = trial

        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
            self.trial.report(trainer.callback_metrics["val_loss"].item(), trainer.current_epoch)
            if self.trial.should_prune():
                raise optuna.TrialPruned

    # A trial whose loss is above this bound is pruned after its first epoch.
    pruner = optuna.pruners.ThresholdPruner(upper=1e-9)
    study = optuna.create_study(storage=optuna.storages.InMemoryStorage(), pruner=pruner)

    def objective(trial: optuna.Trial) -> float:
        fit(recipe(*CNN), tmp_path / str(trial.number), callbacks=Pruning(trial))
        return 0.0

    study.optimize(objective, n_trials=1)
    assert study.trials[0].state is optuna.trial.TrialState.PRUNED
    assert list(study.trials[0].intermediate_values) == [0]
    assert resume(tmp_path / "0").metrics()["epoch"] == [1, 2, 3]


def test_options_of_the_trainer(recipe: MakeRecipe, tmp_path: Path) -> None:
    # No gradient is left: the weights stay as they were initialised.
    options = {"gradient_clip_val": 1e-30, "limit_train_batches": 2}
    sgd = recipe(*CNN, "optim.name=sgd", "trainer.epochs=2")
    run = fit(sgd, tmp_path / "run", trainer_options=options)
    assert run.metrics()["step"] == [2, 4]
    assert run.metrics()["val_loss"][0] == run.metrics()["val_loss"][1]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"max_epochs": 3}, "trainer.epochs"), ({"devices": 2}, "trainer.devices"), ({"no_such": 1}, "no_such")],
)
def test_options_that_the_run_sets_are_refused(
    recipe: MakeRecipe, tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    with raises_about(ConfigError, "trainer_options:", named):
        fit(recipe(*CNN), tmp_path / "run", trainer_options=options)


def test_what_is_no_callback_is_refused(recipe: MakeRecipe, tmp_path: Path) -> None:
    wrong: Any = ["early stopping"]
    with raises_about(ConfigError, "callbacks:", "str"):
        fit(recipe(*CNN), tmp_path / "run", callbacks=wrong)
    with raises_about(ConfigError, "logger:", "str"):
        fit(recipe(*CNN), tmp_path / "run", logger=wrong)
    assert not (tmp_path / "run").exists()


def test_own_logger(recipe: MakeRecipe, tmp_path: Path) -> None:
    run = fit(recipe(*CNN, "trainer.epochs=2"), tmp_path / "run", logger=CSVLogger(tmp_path, "logs", 0))
    lines = (tmp_path / "logs" / "version_0" / "metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("val_loss")
    logged = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
    assert logged == pytest.approx(run.metrics()["val_loss"])


class Bars(Dataset[tuple[np.ndarray, int]]):
    """Images of a bright row, whose height is the class."""

    classes = ("high", "middle", "low")

    def __init__(self, count: int, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.labels = np.arange(count) % 3
        self.images = draw.random((count, 20, 20), dtype=np.float32) / 2
        self.images[np.arange(count), 5 + 4 * self.labels] = 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index], int(self.labels[index])


class Noisy(Bars):
    """The same images with noise of torch's generator, as an augmentation draws it."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = super().__getitem__(index)
        return torch.from_numpy(image)[None] * torch.rand(()), label


def bars() -> dict[str, Any]:
    return {"train": Bars(48), "val": Bars(12, 1), "test": Bars(12, 2)}


def noisy() -> dict[str, Any]:
    return {**bars(), "train": DataLoader(Noisy(48), batch_size=16, shuffle=True)}


@pytest.mark.parametrize("make", [bars, noisy])
def test_own_data_resume_bit_for_bit(recipe: MakeRecipe, tmp_path: Path, make: Any) -> None:
    whole = fit(recipe(*CNN), tmp_path / "whole", data=make())
    assert whole.record["images"] == {"train": 48, "val": 12, "test": 12}
    assert whole.record["class_names"] == ["high", "middle", "low"]
    assert whole.recipe.data.name == "own"
    for step in (2, 5):
        folder = tmp_path / str(step)
        with pytest.raises(Killed):
            fit(recipe(*CNN), folder, data=make(), callbacks=Killer(step))
        run = resume(folder, data=make())
        assert same_rows(run, whole)
        assert run.weights.read_bytes() == whole.weights.read_bytes()


def test_own_data_are_learned_and_evaluated(recipe: MakeRecipe, tmp_path: Path) -> None:
    run = fit(recipe("trainer.epochs=8"), tmp_path / "run", data=bars())
    assert run.results["test_images"] == 12
    assert run.results["test_accuracy"] > 0.8
    assert len(run.load_data("test")) == 12


def test_run_on_own_data_needs_them_again(recipe: MakeRecipe, tmp_path: Path) -> None:
    run = fit(recipe(*CNN, "trainer.epochs=1"), tmp_path / "run", data=bars())
    with raises_about(DataError, "data:", run.path):
        resume(run.path, epochs=2)
    with raises_about(DataError, "data:", run.path):
        Run.open(run.path).load_data("test")
    with raises_about(DataError, "data:", 48, 24):
        resume(run.path, epochs=2, data={**bars(), "train": Bars(24)})
    assert resume(run.path, epochs=2, data=bars()).metrics()["epoch"] == [1, 2]


def test_data_for_a_run_on_a_registered_data_set_are_refused(recipe: MakeRecipe, tmp_path: Path) -> None:
    run = fit(recipe(*CNN, "trainer.epochs=1"), tmp_path / "run")
    with raises_about(DataError, "data:", "folder"):
        resume(run.path, epochs=2, data=bars())


def test_own_data_without_validation(recipe: MakeRecipe, tmp_path: Path) -> None:
    data = {"train": tc.load_data("digits", "val").subset(range(48)), "test": tc.load_data("digits", "test")[:20]}
    run = fit(recipe(*CNN, "trainer.epochs=1"), tmp_path / "run", data=data)
    assert run.record["images"] == {"train": 48, "val": 0, "test": 20}


@pytest.mark.parametrize(
    ("error", "data", "named"),
    [
        (ConfigError, {"train": Bars(6)}, ("data:", "train")),
        (ConfigError, {"train": Bars(6), "test": Bars(6), "dev": Bars(6)}, ("data:", "dev")),
        (DataError, {"train": iter([]), "test": Bars(6)}, ("data['train']", "iterator")),
        (DataError, {"train": [1, 2], "test": Bars(6)}, ("data['train']", "label")),
        (DataError, {"train": Bars(6), "test": [(torch.zeros(8, 8), 0)]}, ("data['test']", "(1, 8, 8)")),
        (DataError, {"train": Bars(6), "test": [(torch.zeros(20, 20), 3)]}, ("data['test']", "3")),
        (DataError, {"train": [(torch.full((8, 8), 2.0), 0)], "test": Bars(6)}, ("image:", "2")),
    ],
)
def test_unusable_data_are_refused(
    recipe: MakeRecipe, tmp_path: Path, error: type[TorchcapsError], data: Any, named: tuple[str, ...]
) -> None:
    with raises_about(error, *named):
        fit(recipe(*CNN), tmp_path / "run", data=data)
    assert not (tmp_path / "run").exists()


def test_loader_that_cannot_resume_is_refused(recipe: MakeRecipe, tmp_path: Path) -> None:
    loader = DataLoader(Bars(48), batch_size=16, num_workers=1, persistent_workers=True)
    with raises_about(ConfigError, "persistent_workers"):
        fit(recipe(*CNN), tmp_path / "run", data={**bars(), "train": loader})
    assert not (tmp_path / "run").exists()


def test_view_of_a_dataset() -> None:
    view = DatasetView(Bars(9), "train")
    assert view.image_shape == (1, 20, 20)
    assert view.subset([3, 1]).labels.tolist() == [0, 1]
    assert view.cropped(8).images.shape == (9, 1, 8, 8)
    assert view.batch([4]).images[0, 0, 9].eq(255).all()
