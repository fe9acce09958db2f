from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, TorchcapsError, UnknownNameError
from torchcaps.experiments import (
    Comparison,
    RouterMetrics,
    RunOutcome,
    SilentReporter,
    compare,
    compare_lines,
    read_json,
)
from torchcaps.experiments.compare import with_router
from torchcaps.experiments.grid import CLAIMS
from torchcaps.nn import ROUTERS, DynamicRouting
from torchcaps.train import Run
from torchcaps.train._callback import RunCallback

from .conftest import write_images

TWO = ("dynamic", "em")


class ListReporter(SilentReporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def announce(self, text: str) -> None:
        self.texts.append(text)


def without_date(result: Comparison) -> dict[str, Any]:
    return {**vars(result), "date": ""}


def metrics(result: Comparison, row: int, run: int) -> RouterMetrics:
    found = result.rows[row].runs[run].metrics
    assert found is not None
    return found


def test_every_router_and_seed_is_a_run(recipe, tmp_path):
    reporter, out = ListReporter(), tmp_path / "out"
    result = compare(recipe("seed=4"), out, routers=TWO, seeds=2, reporter=reporter)
    assert reporter.texts == ["1/4  dynamic, seed 4", "2/4  em, seed 4", "3/4  dynamic, seed 5", "4/4  em, seed 5"]
    folders = sorted(path.name for path in out.iterdir() if path.is_dir() and path.name != CLAIMS)
    assert folders == ["dynamic-seed4", "dynamic-seed5", "em-seed4", "em-seed5"]
    run = Run.open(out / "em-seed5")
    assert (run.recipe.seed, run.recipe.model.options["routing"]["name"]) == (5, "em")
    assert result == read_json(Comparison, out / "compare.json")
    assert (result.status, result.seeds, result.name) == ("finished", [4, 5], "folder")
    row = result.rows[1]
    results = [Run.open(out / f"em-seed{seed}").results for seed in (4, 5)]
    assert row.test_accuracy is not None
    assert row.test_accuracy.mean == pytest.approx(sum(each["test_accuracy"] for each in results) / 2)
    assert [metrics(result, 1, k).val_accuracy for k in (0, 1)] == [each["best"]["val_accuracy"] for each in results]
    assert row.memory_mb == 12.5
    for value in (row.entropy, row.changed, row.dead):
        assert value is not None
        assert 0 <= value.mean <= 1.0001
        assert value.count == 2
    for value in (row.logit_change, row.gradient_norm):
        assert value is not None
        assert value.mean > 0
    diagnostics = json.loads((run.path / "comparison.json").read_text())["diagnostics"]
    second = metrics(result, 1, 1)
    assert second.logit_change == pytest.approx(sum(diagnostics["layers"][-1]["logit_change"]) / 2)
    assert second.gradient_norm == pytest.approx(sum(norm**2 for norm in diagnostics["gradient_norms"].values()) ** 0.5)
    assert 0 < second.epoch_seconds <= second.seconds + 0.1
    assert [cells[0] for cells in compare_lines(result)] == ["router", *TWO]


def test_finished_runs_are_not_repeated(recipe, tmp_path, monkeypatch):
    first = compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("repeated")

    for name in ("train._runner.train_loop", "experiments.compare_metrics.diagnose", "bench.step_memory.step_memory"):
        monkeypatch.setattr(f"torchcaps.{name}", never)
    again = compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    assert again.rows[0].runs[0].status == "finished"
    assert without_date(again) == without_date(first)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == files


def test_stop_and_resume(recipe, tmp_path, monkeypatch):
    whole = compare(recipe(), tmp_path / "whole", routers=TWO, seeds=1)
    after = RunCallback.on_train_batch_end

    def interrupted(self, trainer, *args):
        if "em" in self.run.path.name:
            signal.raise_signal(signal.SIGINT)
        after(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_batch_end", interrupted)
        stopped = compare(recipe(), tmp_path / "out", routers=TWO, seeds=2)
    assert stopped.status == "stopped"
    assert [[run.status for run in row.runs] for row in stopped.rows] == [["finished"], ["stopped"]]
    assert stopped.rows[1].test_accuracy is None
    result = compare(recipe(), tmp_path / "out", routers=TWO, seeds=1)
    assert result.status == "finished"
    for name in TWO:
        runs = (tmp_path / folder / f"{name}-seed0" / "weights.safetensors" for folder in ("whole", "out"))
        assert len({path.read_bytes() for path in runs}) == 1
    assert result.rows[1].test_accuracy == whole.rows[1].test_accuracy


def test_failing_router_is_reported(recipe, tmp_path, monkeypatch):
    class Unfit(DynamicRouting):
        def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int, **factory: Any) -> None:
            raise ConfigError("in_caps: expected at most 7 children, got more")

    class Broken(DynamicRouting):
        def forward(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no such kernel\nand a long story")

        route = forward

    monkeypatch.setattr(ROUTERS, "_items", {**ROUTERS._items, "broken": Broken, "unfit": Unfit})
    result = compare(recipe(), tmp_path, routers=["broken", "dynamic", "unfit"], seeds=2)
    assert result.status == "finished"
    header, broken, dynamic, unfit = compare_lines(result)
    assert header[-1] == "note"
    assert broken[-1] == "RuntimeError: no such kernel"
    assert unfit[-1] == "in_caps: expected at most 7 children, got more"
    assert dynamic[-1] == ""
    assert [cells[4] for cells in (broken, dynamic, unfit)] == ["0", "2", "0"]
    assert not (tmp_path / "unfit-seed0").exists()


def test_further_test_data(recipe, tmp_path):
    test = f"folder path='{write_images(tmp_path / 'other', 1)}' image_size=20 channels=1"
    compare(recipe(), tmp_path / "out", routers=["dynamic"], seeds=1)
    result = compare(recipe(), tmp_path / "out", routers=["dynamic"], seeds=1, tests=[test])
    value = result.rows[0].tests[test]
    assert value is not None
    assert 0 <= value.mean <= 1
    assert compare_lines(result)[0][3] == f"on {test}"


def test_options_of_other_routers(recipe):
    given = recipe("model.options.routing={name = 'dynamic', iters = 2, leaky = true}")
    assert with_router(given, "em", 7).model.options["routing"] == {"name": "em", "iters": 2}
    assert with_router(given, "em", 7).model.options["decoder"] == "none"
    assert with_router(given, "dynamic", 7).model.options["routing"]["leaky"] is True
    named = recipe("model.options.routing=dynamic")
    assert with_router(named, "em", 7).model.options["routing"] == {"name": "em"}


def test_all_routers_by_default(recipe, tmp_path, monkeypatch):
    def fail(plan, *args, **options):
        return (RunOutcome(planned, "failed", error="no") for planned in plan)

    monkeypatch.setitem(compare.__globals__, "run_grid", fail)
    assert [row.router for row in compare(recipe(), tmp_path, seeds=1).rows] == ROUTERS.names()
    assert [row.router for row in compare(recipe(), tmp_path, routers=("em", "em"), seeds=1).rows] == ["em"]


def test_folder_of_another_recipe(recipe, tmp_path):
    compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    with raises_about(CheckpointError, "folder", "dynamic-seed0", "optim"):
        compare(recipe("optim.lr=0.5"), tmp_path, routers=["dynamic"], seeds=1)


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"routers": ["dynamik"]}, UnknownNameError, ("'dynamik'", "'dynamic'")),
        ({"seeds": 0}, ConfigError, ("seeds", "0")),
        ({"tests": ["mnist x"]}, ConfigError, ("test", "'mnist x'")),
        ({"tests": ["digits"]}, ConfigError, ("test", "(1, 20, 20)", "(1, 28, 28)")),
    ],
)
def test_errors_before_training(
    recipe, tmp_path: Path, options: dict[str, Any], error: type[TorchcapsError], names: tuple[str, ...]
):
    with raises_about(error, *names):
        compare(recipe("data.options.image_size=20"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_model_without_router(recipe, tmp_path):
    with raises_about(ConfigError, "model.name", "capsnet_small", "'cnn_small'"):
        compare(recipe("model.name=cnn_small", "model.options={}"), tmp_path)
