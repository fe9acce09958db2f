from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.reproduce import FIGURES, MEASURES, Measure, load_reproduction, plan, reproduce, result_file
from torchcaps.train import Run, resume
from torchcaps.train._keeper import Keeper
from torchcaps.viz import Figure

from .entries import TINY, write_entry


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A measure that takes no time, and the runs that it was asked about."""
    runs: list[str] = []

    def ask(run: Run, progress: Any) -> dict[str, float]:
        runs.append(run.path.name)
        progress(1, 1)
        return {"error": 10.0 + run.recipe.seed}

    monkeypatch.setitem(MEASURES._items, "error", Measure(("error",), ask))
    return runs


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Two figures, of which the second cannot be drawn, and what they were given."""
    given: list[dict[str, int]] = []

    def draw(runs: Mapping[str, Run]) -> Figure:
        given.append({label: run.recipe.seed for label, run in runs.items()})
        return Figure()

    def fail(runs: Mapping[str, Run]) -> Figure:
        raise ConfigError("runs: expected a decoder, got none")

    monkeypatch.setattr(FIGURES, "_items", {"good": draw, "bad": fail})
    return given


def test_networks_are_trained_measured_and_drawn(tmp_path, asked, drawn):
    entry, told = load_reproduction(write_entry(tmp_path, figures='["good", "bad"]')), []
    result = reproduce(entry, tmp_path / "out", changes=[*TINY, "trainer.precision=64-true"], tell=told.append)
    assert told == [
        "1/3  CNN, seed 0",
        "2/3  Capsules, 1 iteration, seed 0",
        "3/3  CNN, seed 1",
        "drawing good",
        "drawing bad",
    ]
    assert result == json.loads(result_file("tiny", tmp_path / "out").read_text())
    # Accelerator and precision make no other experiment of it.
    assert (result["status"], result["changes"]) == ("finished", list(TINY[:-1]))
    cnn, capsules = result["rows"]
    assert cnn["measured"]["error"] == {"mean": 10.5, "deviation": pytest.approx(0.7071, abs=1e-4), "count": 2}
    assert (cnn["paper"], capsules["paper"]) == ({"error": 0.39}, {})
    assert [run["folder"] for run in cnn["runs"]] == [asked[0], asked[2]]
    run = Run.open(tmp_path / "out" / capsules["runs"][0]["folder"])
    assert run.recipe.model.options["routing"] == {"name": "dynamic", "iters": 1}
    assert capsules["parameters"] == run.record["parameters"]
    assert capsules["recipe"]["model"]["name"] == "capsnet_small"
    assert {"machine", "versions", "commit", "finished", "seconds"} <= set(capsules["runs"][0])
    assert capsules["runs"][0]["precision"] == run.recipe.trainer.precision == "64-true"
    assert capsules["epochs"]["mean"] == 1
    # The first seed of each is what pictures are made of.
    assert drawn == [{"CNN": 0, "Capsules, 1 iteration": 0}]
    assert result["pictures"] == {"good": "pictures/tiny-good.png"}
    assert (tmp_path / "out" / "pictures" / "tiny-good.png").read_bytes().startswith(b"\x89PNG")
    assert result["not drawn"] == {"bad": "runs: expected a decoder, got none"}


def test_what_is_finished_is_neither_trained_nor_measured_again(tmp_path, asked, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    first = reproduce(entry, tmp_path, changes=TINY, train=["CNN"])
    assert first["status"] == "partial"
    assert [row["runs"][0]["status"] for row in first["rows"]] == ["finished", "not run"]
    count = len(asked)

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr("torchcaps.train._start.fit", never)
    again = reproduce(entry, tmp_path, changes=TINY, train=[])
    assert {**again, "date": ""} == {**first, "date": ""}
    assert len(asked) == count
    reproduce(entry, tmp_path, changes=TINY, train=[], again=True)
    assert len(asked) == 2 * count


def test_pictures_stay_while_more_is_trained(tmp_path, asked, drawn, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, figures='["good"]', seeds="1"))
    first = reproduce(entry, tmp_path, changes=TINY, train=["CNN"])
    assert first["pictures"] == {"good": "pictures/tiny-good.png"}

    def broken(self, trainer, *args):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Keeper, "on_train_batch_end", broken)
    assert reproduce(entry, tmp_path, changes=TINY)["status"] == "stopped"
    assert json.loads(result_file("tiny", tmp_path).read_text())["pictures"] == first["pictures"]
    (tmp_path / "pictures" / "tiny-good.png").unlink()
    reproduce(entry, tmp_path, changes=TINY)
    assert json.loads(result_file("tiny", tmp_path).read_text())["pictures"] == {}


def test_a_run_that_never_gets_to_where_it_was_to_stop(tmp_path, asked):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    result = reproduce(entry, tmp_path, changes=[*TINY, "trainer.stop_at=1.5"], train=["CNN"])
    assert result["rows"][0]["runs"][0]["short"].startswith("to be stopped at 150.00% in validation, but came to ")


def test_ctrl_c_stops_and_the_same_call_goes_on(tmp_path, asked, drawn, monkeypatch):
    entry = load_reproduction(write_entry(tmp_path, figures='["good"]', seeds="1"))
    after = Keeper.on_train_batch_end

    def interrupted(self, trainer, *args):
        signal.raise_signal(signal.SIGINT)
        after(self, trainer, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_batch_end", interrupted)
        stopped = reproduce(entry, tmp_path, changes=TINY)
    assert stopped["status"] == "stopped"
    assert [len(row["runs"]) for row in stopped["rows"]] == [1, 0]
    assert drawn == []
    # A report does not go on with it.
    report = reproduce(entry, tmp_path, changes=TINY, train=[])
    assert (report["status"], report["rows"][0]["runs"][0]["status"]) == ("partial", "not run")
    assert reproduce(entry, tmp_path, changes=TINY, train=["CNN"])["rows"][0]["runs"][0]["status"] == "finished"
    assert drawn == [{"CNN": 0}]


def test_one_that_fails_is_told_and_the_others_go_on(tmp_path, asked):
    entry = load_reproduction(
        write_entry(tmp_path, seeds="1", changes='["model.name=cnn_small", "model.options={depth = 9}"]')
    )
    result = reproduce(entry, tmp_path, changes=TINY)
    cnn, capsules = (row["runs"][0] for row in result["rows"])
    assert cnn["error"] == "unknown option 'depth' of model 'cnn_small'; known: dropout"
    assert capsules["status"] == "finished"
    assert result["status"] == "partial"


def test_a_folder_that_became_another_run(tmp_path, asked):
    entry = load_reproduction(write_entry(tmp_path, seeds="1"))
    reproduce(entry, tmp_path, changes=TINY, train=["CNN"])
    resume(tmp_path / plan(entry, TINY)[0].folder, epochs=2)
    words = r"folder: expected a run of the same recipe, got '.*digits-.*-seed0' with another one \(trainer differs\)"
    with pytest.raises(CheckpointError, match=words):
        reproduce(entry, tmp_path, changes=TINY, train=[])
