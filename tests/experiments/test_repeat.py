from __future__ import annotations

import statistics

import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.experiments import Repetition, read_json, repeat, repeat_lines, run_lines, write_repeat_report
from torchcaps.experiments.repeat import RESULT
from torchcaps.train import Run

from .test_compare import ListReporter


@pytest.fixture(scope="module")
def repeated(images, tmp_path_factory):
    from torchcaps.train import load_recipe

    changes = ["model.name=cnn_small", "model.options={}", f"data.options.path={images}", "data.batch_size=12"]
    changes += ["trainer.epochs=1", "optim.warmup=0", "trainer.accelerator=cpu", "loss.reconstruction=0"]
    recipe, folder = load_recipe("folder", changes), tmp_path_factory.mktemp("repeat") / "runs"
    return recipe, folder, repeat(recipe, folder, seeds=2, folds=3)


def test_runs(repeated):
    _, folder, result = repeated
    assert [(run.folder, run.seed, run.fold) for run in result.runs] == [
        (f"fold{fold}-seed{seed}", seed, fold) for seed in (0, 1) for fold in (1, 2, 3)
    ]
    assert (result.status, {run.status for run in result.runs}) == ("finished", {"finished"})
    # Every image is tested once with each seed.
    assert sum(run.images for run in result.runs) == 60
    # The folds are the same with every seed.
    labels = [Run.open(folder / f"fold2-seed{seed}").load_data("test").images for seed in (0, 1)]
    assert labels[0].equal(labels[1])
    assert read_json(Repetition, folder / RESULT) == result


def test_metrics_are_means_over_the_runs(repeated):
    _, folder, result = repeated
    scores, balanced = [], []
    for run in result.runs:
        found = Run.open(folder / run.folder).context.evaluate()
        scores.append(f1_score(found.labels, found.predictions, average="macro"))
        balanced.append(balanced_accuracy_score(found.labels, found.predictions))
    assert result.metrics["f1_macro"].mean == pytest.approx(statistics.mean(scores))
    assert result.metrics["f1_macro"].std == pytest.approx(statistics.stdev(scores))
    assert result.metrics["balanced_accuracy"].mean == pytest.approx(statistics.mean(balanced))


def test_finished_runs_are_not_repeated(repeated):
    recipe, folder, result = repeated
    before = [(folder / run.folder / "run.json").stat().st_mtime_ns for run in result.runs]
    again = repeat(recipe, folder, seeds=2, folds=3)
    assert (again.runs, again.metrics) == (result.runs, result.metrics)
    assert before == [(folder / run.folder / "run.json").stat().st_mtime_ns for run in result.runs]


def test_more_folds_are_other_runs(repeated):
    from torchcaps.errors import CheckpointError

    recipe, folder, _ = repeated
    with raises_about(CheckpointError, "folder", "fold1-seed0", "data"):
        repeat(recipe, folder, seeds=2, folds=4)


def test_tables_and_page(repeated):
    _, folder, result = repeated
    lines = {line[0]: line[1:] for line in repeat_lines(result)}
    assert lines["metric"] == ["mean", "deviation", "smallest", "largest", "runs"]
    assert lines["accuracy"][-1] == "6"
    assert [line[2] for line in run_lines(result)] == ["fold", "1", "2", "3", "1", "2", "3"]
    page = write_repeat_report(result, folder).read_text()
    assert "one of 3 folds" in page
    assert "60 images" in page
    assert "fold3-seed1" in page


def test_seeds_only(recipe, tmp_path):
    reporter = ListReporter()
    result = repeat(recipe("trainer.epochs=1", "seed=5"), tmp_path, seeds=2, reporter=reporter)
    assert [(run.folder, run.fold) for run in result.runs] == [("seed5", None), ("seed6", None)]
    assert {each.count for each in result.metrics.values() if each is not None} == {2}
    assert "fold" not in run_lines(result)[0]


def test_failed_run_is_reported(recipe, tmp_path):
    result = repeat(recipe("trainer.epochs=2", "optim.name=sgd", "optim.lr=1e38"), tmp_path, seeds=1, folds=2)
    assert {run.status for run in result.runs} == {"failed"}
    assert "loss" in run_lines(result)[1][-1]
    assert "failed" in write_repeat_report(result, tmp_path).read_text()


def test_wrong_numbers(recipe, tmp_path):
    with raises_about(ConfigError, "seeds", 0):
        repeat(recipe(), tmp_path, seeds=0)
    with raises_about(ConfigError, "groups", "folder"):
        repeat(recipe(), tmp_path, groups="folder")
    with raises_about(ConfigError, "folds", 15, 16):
        repeat(recipe(), tmp_path, folds=16)
    assert not list(tmp_path.iterdir())
