from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from torchcaps.bench import compare, compare_lines
from torchcaps.bench.compare import with_router
from torchcaps.errors import CheckpointError, ConfigError, UnknownNameError
from torchcaps.nn import ROUTERS, DynamicRouting
from torchcaps.train import Recipe, Run, load_recipe
from torchcaps.train._keeper import Keeper

TWO = ("dynamic", "em")


def draw_pictures(root: Path, seed: int) -> Path:
    """Two classes of 15 grey images, 20x20: a bright bar, above or below."""
    generator = np.random.default_rng(seed)
    for top, name in ((4, "high"), (12, "low")):
        (root / name).mkdir(parents=True)
        for number in range(15):
            pixels = generator.integers(0, 120, (20, 20), dtype=np.uint8)
            pixels[top : top + 4] += 120
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_pictures(tmp_path_factory.mktemp("bars") / "pictures", 0)


@pytest.fixture
def recipe(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recipe]:
    """A recipe of a second, whose memory is not measured: a process for each takes longer than all of the rest."""
    monkeypatch.setattr("torchcaps.bench.step.step_memory", lambda path: 12.5)

    def make(*overrides: str) -> Recipe:
        small = ["data.batch_size=12", "trainer.epochs=2", "trainer.checkpoint_every=1", "optim.warmup=0"]
        words = ["model.options={decoder = 'none'}", f"data.options.path={pictures}", "trainer.accelerator=cpu"]
        return load_recipe("folder", [*words, *small, *overrides])

    return make


def test_every_router_and_seed_is_an_ordinary_run(recipe, tmp_path):
    told: list[str] = []
    result = compare(recipe("seed=4"), tmp_path / "out", routers=TWO, seeds=2, tell=told.append)
    assert told == ["1/4  dynamic, seed 4", "2/4  em, seed 4", "3/4  dynamic, seed 5", "4/4  em, seed 5"]
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert folders == ["dynamic-seed4", "dynamic-seed5", "em-seed4", "em-seed5"]
    run = Run.open(tmp_path / "out" / "em-seed5")
    assert (run.recipe.seed, run.recipe.model.options["routing"]["name"]) == (5, "em")
    assert result == json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (result["status"], result["seeds"]) == ("finished", [4, 5])
    assert {"machine", "versions", "commit", "date", "recipe"} <= set(result)
    row = result["rows"][1]
    results = [Run.open(tmp_path / "out" / f"em-seed{seed}").results for seed in (4, 5)]
    assert row["test_accuracy"]["mean"] == pytest.approx(sum(each["test_accuracy"] for each in results) / 2)
    assert [each["val_accuracy"] for each in row["runs"]] == [each["best"]["val_accuracy"] for each in results]
    assert row["memory_mb"] == 12.5
    for measure in ("entropy", "changed", "dead"):
        assert 0 <= row[measure]["mean"] <= 1.0001
        assert row[measure]["count"] == 2
    for measure in ("logit_change", "gradient_norm"):
        assert row[measure]["mean"] > 0
        assert row[measure]["count"] == 2
    found = json.loads((run.path / "measured.json").read_text())["diagnostics"]
    assert row["runs"][1]["logit_change"] == pytest.approx(sum(found["layers"][-1]["logit_change"]) / 2)
    squares = sum(norm**2 for norm in found["gradient_norms"].values())
    assert row["runs"][1]["gradient_norm"] == pytest.approx(squares**0.5)
    assert 0 < row["epoch_seconds"]["mean"] <= row["seconds"]["mean"] + 0.1
    assert [cells[0] for cells in compare_lines(result)] == ["router", *TWO]


def test_what_is_finished_is_not_done_again(recipe, tmp_path, monkeypatch):
    first = compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("done again")

    for name in ("_start.fit", "_start._finish"):
        monkeypatch.setattr(f"torchcaps.train.{name}", never)
    for name in ("compare_run.diagnose", "step.step_memory"):
        monkeypatch.setattr(f"torchcaps.bench.{name}", never)
    again = compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    assert {**again, "date": ""} == {**first, "date": ""}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")} == files


def test_ctrl_c_stops_and_the_same_call_goes_on(recipe, tmp_path, monkeypatch):
    whole = compare(recipe(), tmp_path / "whole", routers=TWO, seeds=1)
    after = Keeper.on_train_batch_end

    def interrupted(self, trainer, *args):
        if "em" in self.folder.name:
            signal.raise_signal(signal.SIGINT)
        after(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_batch_end", interrupted)
        stopped = compare(recipe(), tmp_path / "out", routers=TWO, seeds=2)
    assert stopped["status"] == "stopped"
    assert [[run["status"] for run in row["runs"]] for row in stopped["rows"]] == [["finished"], ["stopped"]]
    assert stopped["rows"][1]["test_accuracy"] is None
    result = compare(recipe(), tmp_path / "out", routers=TWO, seeds=1)
    assert result["status"] == "finished"
    for name in TWO:
        runs = (tmp_path / part / f"{name}-seed0" / "weights.safetensors" for part in ("whole", "out"))
        assert len({path.read_bytes() for path in runs}) == 1
    assert result["rows"][1]["test_accuracy"] == whole["rows"][1]["test_accuracy"]


def test_a_router_that_fails_is_told_and_the_others_go_on(recipe, tmp_path, monkeypatch):
    class Unfit(DynamicRouting):
        def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
            raise ConfigError("in_caps: expected at most 7 children, got more")

    class Broken(DynamicRouting):
        def forward(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no such kernel\nand a long story")

        route = forward

    monkeypatch.setattr(ROUTERS, "_items", {**ROUTERS._items, "broken": Broken, "unfit": Unfit})
    result = compare(recipe(), tmp_path, routers=["broken", "dynamic", "unfit"], seeds=2)
    assert result["status"] == "finished"
    header, broken, dynamic, unfit = compare_lines(result)
    assert header[-1] == "note"
    assert broken[-1] == "RuntimeError: no such kernel"
    assert unfit[-1] == "in_caps: expected at most 7 children, got more"
    assert dynamic[-1] == ""
    assert [cells[4] for cells in (broken, dynamic, unfit)] == ["0", "2", "0"]
    assert not (tmp_path / "unfit-seed0").exists()


def test_other_data_to_test_on(recipe, pictures, tmp_path):
    other = draw_pictures(tmp_path / "other", 1)
    test = f"folder path='{other}' image_size=20 channels=1"
    # The same call with one test more trains nothing anew.
    compare(recipe(), tmp_path / "out", routers=["dynamic"], seeds=1)
    result = compare(recipe(), tmp_path / "out", routers=["dynamic"], seeds=1, tests=[test])
    (row,) = result["rows"]
    assert 0 <= row["tests"][test]["mean"] <= 1
    assert compare_lines(result)[0][3] == f"on {test}"


def test_options_go_to_routers_that_have_them(recipe):
    given = recipe("model.options.routing={name = 'dynamic', iters = 2, leaky = true}")
    assert with_router(given, "em", 7).model.options["routing"] == {"name": "em", "iters": 2}
    assert with_router(given, "em", 7).model.options["decoder"] == "none"
    assert with_router(given, "dynamic", 7).model.options["routing"]["leaky"] is True
    named = recipe("model.options.routing=dynamic")
    assert with_router(named, "em", 7).model.options["routing"] == {"name": "em"}


def test_all_routers_are_the_default(recipe, tmp_path, monkeypatch):
    failed = {"status": "failed", "error": "no"}
    monkeypatch.setitem(compare.__globals__, "attempt", lambda *args, **options: failed)
    result = compare(recipe(), tmp_path, seeds=1)
    assert [row["router"] for row in result["rows"]] == ROUTERS.names()
    assert compare(recipe(), tmp_path, routers=("em", "em"), seeds=1)["rows"][0]["router"] == "em"


def test_another_recipe_needs_another_folder(recipe, tmp_path):
    compare(recipe(), tmp_path, routers=["dynamic"], seeds=1)
    words = r"folder: expected a run of the same recipe, got '.*dynamic-seed0' with another one \(optim differs\)"
    with pytest.raises(CheckpointError, match=words):
        compare(recipe("optim.lr=0.5"), tmp_path, routers=["dynamic"], seeds=1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"routers": ["dynamik"]}, UnknownNameError, r"unknown router 'dynamik'; did you mean 'dynamic'\?"),
        ({"seeds": 0}, ConfigError, "seeds: expected a count of at least 1, got 0"),
        ({"tests": ["mnist x"]}, ConfigError, "test: expected a data set and its options, 'NAME key=value', got"),
        ({"tests": ["digits"]}, ConfigError, r"test: expected images \(1, 20, 20\) of the classes high, low, as the"),
    ],
)
def test_mistakes_show_before_anything_is_trained(recipe, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        compare(recipe("data.options.image_size=20"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_network_without_routing(recipe, tmp_path):
    words = r"model\.name: expected a model whose router can be chosen \(.*capsnet_small.*\), got 'cnn_small'"
    with pytest.raises(ConfigError, match=words):
        compare(recipe("model.name=cnn_small", "model.options={}"), tmp_path)
