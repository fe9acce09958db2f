from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ConfigError, DataError
from torchcaps.experiments import Claims, Sweep, parse_space, read_json, sweep, sweep_lines
from torchcaps.experiments.grid import CLAIMS
from torchcaps.experiments.sweep import BEST, RESULT
from torchcaps.experiments.sweep_study import JOURNAL, SweepStudy
from torchcaps.train import Run, load_recipe

from .test_claims import foreign
from .test_compare import ListReporter

LR = "optim.lr=log(1e-4,1e-2)"


def tiny(images: Path, *changes: str):
    small = ["data.batch_size=12", "trainer.epochs=1", "optim.warmup=0", "trainer.accelerator=cpu"]
    network = ["model.name=cnn_small", "model.options={}", "loss.reconstruction=0", f"data.options.path={images}"]
    return load_recipe("folder", [*network, *small, *changes])


def space(*texts: str):
    return parse_space(texts)[0]


def study(folder: Path, *texts: str, **options) -> SweepStudy:
    return SweepStudy(folder, space(*texts), **{"direction": "maximize", "seed": 0, **options})


@pytest.fixture(scope="module")
def swept(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return (
        tiny(images),
        folder,
        sweep(tiny(images), folder, space("lr=log(1e-4,1e-2)", "data.batch_size=6,12"), trials=5),
    )


def test_trials(swept):
    _, folder, result = swept
    assert (result.status, result.metric, result.planned) == ("finished", "val_accuracy", 5)
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3, 4]
    for trial in result.trials:
        run = Run.open(folder / trial.folder)
        # The short key is completed, and the run has the values of the trial.
        assert run.recipe.optim.lr == float(trial.values["optim.lr"])
        assert 1e-4 <= run.recipe.optim.lr <= 1e-2
        assert run.recipe.data.batch_size == int(trial.values["data.batch_size"])
        assert trial.value == run.results["best"]["val_accuracy"]
    assert len({trial.values["optim.lr"] for trial in result.trials}) == 5
    assert read_json(Sweep, folder / RESULT) == result


def test_best_trial(swept):
    _, folder, result = swept
    best = result.trials[result.best]
    assert best.value == max(trial.value for trial in result.trials)
    recipe = load_recipe(folder / BEST)
    assert recipe == Run.open(folder / best.folder).recipe
    assert result.best_test["test_accuracy"] == Run.open(folder / best.folder).results["test_accuracy"]


def test_table_and_figure(swept):
    result = swept[2]
    header, first, *_ = sweep_lines(result)
    assert header[:4] == ["trial", "lr", "batch_size", "val accuracy"]
    assert first[0] == result.trials[result.best].folder
    document = json.loads((swept[1] / RESULT).read_text())
    assert len(viz.sweep(document).axes) == 3


def test_sweep_is_resumed_and_extended(swept, tmp_path):
    recipe, folder, result = swept
    reporter = ListReporter()
    again = sweep(recipe, folder, space("lr=log(1e-4,1e-2)", "data.batch_size=6,12"), trials=6, reporter=reporter)
    assert again.trials[:5] == result.trials
    assert [trial.number for trial in again.trials] == [0, 1, 2, 3, 4, 5]
    # Only the new trial is trained.
    assert [text[:3] for text in reporter.texts] == ["6/6"]


def test_folder_of_another_sweep(swept):
    recipe, folder, _ = swept
    with raises_about(ConfigError, "folder", folder, "space.json"):
        sweep(recipe, folder, space(LR))
    with raises_about(ConfigError, "folder", folder, "recipe.toml"):
        sweep(
            tiny(Path(recipe.data.options["path"]), "seed=7"),
            folder,
            space("lr=log(1e-4,1e-2)", "data.batch_size=6,12"),
        )


def test_choices_are_tried_once_each(images, tmp_path):
    result = sweep(tiny(images), tmp_path, space("optim.lr=0.001,0.01", "seed=0,1"), trials=30)
    assert [tuple(trial.values.values()) for trial in result.trials] == [
        ("0.001", "0"),
        ("0.001", "1"),
        ("0.01", "0"),
        ("0.01", "1"),
    ]


def test_trial_of_a_killed_process_keeps_its_values(images, tmp_path):
    recipe = tiny(images)
    begun = study(tmp_path, LR).begin(0)
    foreign(tmp_path / CLAIMS / "trial-000.0", status="stopped")
    result = sweep(recipe, tmp_path, space(LR), trials=1)
    assert float(result.trials[0].values["optim.lr"]) == begun.params["optim.lr"]
    # It ended after the training and before the claim was marked: nothing is trained again.
    before = (tmp_path / "trial-000" / "run.json").stat().st_mtime_ns
    foreign(tmp_path / CLAIMS / "trial-000.1", status="stopped")
    assert sweep(recipe, tmp_path, space(LR), trials=1).trials == result.trials
    assert (tmp_path / "trial-000" / "run.json").stat().st_mtime_ns == before
    assert Claims(tmp_path / CLAIMS).state("trial-000").status == "finished"


def test_poor_trial_is_pruned(images, tmp_path):
    made = study(tmp_path, LR, startup=2)
    for value in (2.0, 3.0):
        (distribution,) = made._distributions.values()
        made._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE,
                value=value,
                params={"optim.lr": 0.001},
                distributions={"optim.lr": distribution},
                intermediate_values=dict.fromkeys(range(1, 6), value),
            )
        )
    recipe = tiny(images, "trainer.epochs=6")
    result = sweep(recipe, tmp_path, space(LR), trials=1)
    (trial,) = result.trials
    assert (trial.status, trial.value, result.best) == ("pruned", None, None)
    assert trial.epochs is not None
    assert trial.epochs < 6
    assert sweep_lines(result)[1][3] == "pruned"
    # A trial that is done stays as it is; without pruning a new one is trained to its end.
    result = sweep(recipe, tmp_path, space(LR), trials=2, prune=False)
    assert [(each.status, each.epochs) for each in result.trials] == [("pruned", trial.epochs), ("finished", 6)]


def test_failed_trial_is_reported(images, tmp_path):
    result = sweep(tiny(images, "trainer.epochs=2", "optim.name=sgd"), tmp_path, space("optim.lr=0.001,1e38"))
    assert [trial.status for trial in result.trials] == ["finished", "failed"]
    assert "loss" in str(result.trials[1].error)
    assert result.best == 0


def test_processes_that_start_at_once_try_different_values(tmp_path):
    one, other = study(tmp_path, LR), study(tmp_path, LR)
    assert one.begin(0).params != other.begin(1).params


def test_importance(tmp_path):
    made = study(tmp_path, LR, "b=x,y")
    for slot in range(12):
        trial = made.begin(slot)
        made.finish(trial, float(trial.params["optim.lr"]), "finished")
    importance = made.importance()
    assert importance["optim.lr"] > 0.9
    assert sum(importance.values()) == pytest.approx(1)
    (tmp_path / "empty").mkdir()
    assert study(tmp_path / "empty", LR).importance() == {}


@pytest.mark.parametrize("content", [b"not json\n{}\n", b'{"op_code": 99}\n', b"[]\n[]\n"])
def test_damaged_journal(images, tmp_path, content):
    (tmp_path / JOURNAL).write_bytes(content)
    with raises_about(DataError, JOURNAL):
        sweep(tiny(images), tmp_path, space(LR), trials=1)


@pytest.mark.parametrize(
    ("texts", "about"),
    [
        ([], ("space", "at least one key")),
        (["optim.lrate=1,2"], ("optim.lrate",)),
        (["optim.lr=log(1e-4,1e-2)", "trainer.epochs=0,1"], ("trainer.epochs", 0)),
        (["model.name=cnn_small,no_such_model"], ("no_such_model",)),
    ],
)
def test_wrong_space(images, tmp_path, texts, about):
    with raises_about(ConfigError, *about):
        sweep(tiny(images), tmp_path, space(*texts))
    assert not list(tmp_path.glob("trial-*"))


def test_no_trials(images, tmp_path):
    with raises_about(ConfigError, "trials", 0):
        sweep(tiny(images), tmp_path, space(LR), trials=0)


def test_optuna_is_quiet():
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING
