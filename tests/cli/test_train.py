from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refusing import refused
from torchcaps import train
from torchcaps.cli import main
from torchcaps.cli._args import program
from torchcaps.models import _describe
from torchcaps.train import Run, _runner, context, load_recipe
from torchcaps.train import module as train_module
from torchcaps.train import run as train_run
from torchcaps.train._recovery import text_hash

from .conftest import CLASSES, TINY


def test_train_on_image_folder(run: Path) -> None:
    opened = Run.open(run)
    assert opened.status == "finished"
    assert tuple(opened.record["class_names"]) == CLASSES
    text = (run / "report.html").read_text()
    assert "dog &amp; &lt;b&gt;" in text
    assert "<b>" not in text
    figures = {file.stem for file in (run / "figures").glob("*.png")}
    assert figures >= {"confusion", "coupling", "curves", "diagnostics", "reconstructions"}


def test_finished_run_prints_result_and_next_steps(run: Path, ask) -> None:
    code, out, _ = ask("train", "--resume", run)
    assert code == 0
    accuracy = json.loads((run / "evaluation.json").read_text())["accuracy"]
    assert out.startswith(f"accuracy {accuracy:.2%} on 6 held-out images (error {1 - accuracy:.2%})\n")
    for words in (f"report  {run}/report.html\n", f"run     {run}\n", f"  {program()} predict {run} IMAGE  "):
        assert words in out
    assert f"  {program()} train {run}/recipe.toml model.options.routing.iters=1  " in out


def test_no_report(pictures: Path, tmp_path: Path, ask) -> None:
    folder = tmp_path / "run"
    code, out, _ = ask(
        "train", "folder", *TINY, f"data.options.path={pictures}", "--out", folder, "--quiet", "--no-report"
    )
    assert code == 0
    assert out.startswith("accuracy ")
    assert out.endswith(f"run  {folder}\n")
    assert not (folder / "report.html").exists()
    assert not any((folder / "figures").iterdir())
    assert Run.open(folder).status == "finished"


def test_restart_needs_a_run(ask) -> None:
    refused(ask, "train", "digits", "--restart", about=["--restart:", "--resume"])


def test_printed_accuracy_matches_run(run: Path, ask_json) -> None:
    document = ask_json("train", "--resume", run)
    assert document["accuracy"] == Run.open(run).results["test_accuracy"]
    assert document["report"] == str(run / "report.html")
    assert document["status"] == "finished"


def test_no_routing_hints_without_capsules(cnn_run: Path, ask) -> None:
    code, out, _ = ask("train", "--resume", cnn_run)
    assert code == 0
    assert "routing" not in out
    assert "perturbations" not in out
    assert "decoder" in (cnn_run / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["digit"], ["unknown recipe 'digit'", "'digits'"]),
        (["digits", "mnist"], ["recipe:", "got digits, mnist"]),
        (["--resume", "r", "x=1"], ["--resume:", "trainer.epochs=N"]),
        (["--resume", "/no/run"], ["run:", "got '/no/run'"]),
        (["lr=0.1/recipe.toml"], ["lr=0.1/recipe.toml", "recipe"]),
        (["lrr=0.1"], ["unknown key 'lrr'"]),
    ],
)
def test_errors_name_the_argument(words: list[str], named: list[str], ask) -> None:
    refused(ask, "train", *words, about=named)


def test_stopped_run_prints_resume_command(run: Path, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    (stopped / "run.json").write_text('{"status": "stopped", "signal": "SIGTERM"}')
    (stopped / "recipe.toml").write_text((run / "recipe.toml").read_text())
    monkeypatch.setattr(train, "fit", lambda recipe, folder, progress: Run.open(stopped), raising=False)
    words = f"stopped; resume with: {program()} train --resume {stopped}\n"
    assert ask("train") == (143, "", words)
    code, out, _ = ask("train", "--json")
    assert code == 143
    assert json.loads(out) == {"run": str(stopped), "status": "stopped"}


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_signal_saves_and_resume_continues(tmp_path: Path, pictures: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    changes = [*TINY, "trainer.epochs=400", f"data.options.path={pictures}"]
    command = [sys.executable, "-m", "torchcaps", "train", "folder", *changes, "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 900
        while not (folder / "metrics.csv").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=900)
    assert process.returncode == 128 + number, err
    assert out.startswith("found\n")
    assert "accuracy" not in out
    assert err.splitlines()[-1] == f"stopped; resume with: {program()} train --resume {folder}"
    assert "Traceback" not in err
    assert Run.open(folder).status == "stopped"
    assert list((folder / "checkpoints").glob("*.ckpt"))
    # With few more epochs in the recipe than are done, the run ends soon.
    done = len(Run.open(folder).metrics()["epoch"])
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 400", f"epochs = {done + 2}"))
    Run(folder, load_recipe(recipe)).update_record(recipe_sha256=text_hash(recipe.read_bytes()))
    assert main(["train", "--resume", str(folder), "--quiet"]) == 0
    assert len(Run.open(folder).metrics()["epoch"]) == done + 2


def test_data_model_and_test_split_are_used_once(
    tmp_path: Path, pictures: Path, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    def count(module: Any, name: str, key: Callable[..., str]) -> None:
        whole = getattr(module, name)

        def counted(*args: Any, **options: Any) -> Any:
            counts[key(*args)] += 1
            return whole(*args, **options)

        monkeypatch.setattr(module, name, counted)

    for module in (_runner, train_run):
        count(module, "load_data", lambda name, split: f"load {split}")
    for module in (train_module, _describe):
        count(module, "create_model", lambda *args: "create model")
    count(context, "evaluate", lambda model, data: f"evaluate {data.split}")
    words = ("train", "folder", *TINY, f"data.options.path={pictures}", "--out", tmp_path / "run")
    assert ask(*words)[0] == 0
    # The temperature is fitted on the validation split.
    evaluations = {"evaluate val": 1, "evaluate test": 1}
    assert counts == {"load train": 1, "load val": 1, "load test": 1, "create model": 1, **evaluations}
    # Evaluating and drawing later reads what is stored.
    for later in (("eval", tmp_path / "run"), ("show", tmp_path / "run", "--figure", "confusion")):
        assert ask(*later)[0] == 0
    assert counts["evaluate test"] == 1


def test_network_without_classes(pictures: Path, tmp_path: Path, ask, ask_json) -> None:
    words = ("model.name=transforming_autoencoder", "model.options={}", f"data.options.path={pictures}")
    document = ask_json("train", "folder", *TINY, *words, "--out", tmp_path / "run")
    assert document["loss"] > 0
    assert "accuracy" not in document
    code, out, err = ask("eval", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.startswith(f"loss {document['loss']:.4g} on ")
    picture = next((pictures / "eel").iterdir())
    words = "predict: expected a classifier, got transforming_autoencoder\n"
    assert ask("predict", tmp_path / "run", picture) == (2, "", words)
    assert ask("show", tmp_path / "run", "--figure", "transformations")[0] == 0


def test_options_and_short_keys(pictures: Path, tmp_path: Path, ask) -> None:
    words = ("train", pictures, "--epochs", "1", "--batch-size=16", "iters=1", "accelerator=cpu", "--no-report")
    code, _, err = ask(*words, "--out", tmp_path / "run")
    assert code == 0
    recipe = Run.open(tmp_path / "run").recipe
    assert (recipe.trainer.epochs, recipe.data.batch_size) == (1, 16)
    assert recipe.model.options["routing"] == {"name": "dynamic", "iters": 1}
    # What is trained is printed before the first epoch.
    assert "36 train, 6 val, 6 test images of 1x20x20 in 3 classes" in err
    assert str(tmp_path / "run") in err
    refused(ask, "train", pictures, "--epohcs", "1", about=["unknown option '--epohcs'", "did you mean '--epochs'?"])
    refused(ask, "train", tmp_path / "nosuch", about=["unknown recipe", "no folder"])
