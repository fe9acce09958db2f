from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchcaps import train
from torchcaps.cli import main
from torchcaps.cli._words import program
from torchcaps.train import Run

from .conftest import CLASSES, TINY


def test_a_folder_of_images_trains_with_one_command(run: Path) -> None:
    opened = Run.open(run)
    assert opened.status == "finished"
    assert tuple(opened.record["class_names"]) == CLASSES
    text = (run / "report.html").read_text()
    assert "dog &amp; &lt;b&gt;" in text
    assert "<b>" not in text
    pictures = {file.stem for file in (run / "pictures").glob("*.png")}
    assert pictures >= {"confusion", "coupling", "curves", "diagnostics", "perturbations", "reconstructions"}


def test_a_finished_run_says_what_came_of_it_and_what_to_try(run: Path, ask) -> None:
    code, out, _ = ask("train", "--resume", run)
    assert code == 0
    accuracy = json.loads((run / "evaluation.json").read_text())["accuracy"]
    assert out.startswith(f"accuracy {accuracy:.2%} on 6 held-out images (error {1 - accuracy:.2%})\n")
    for words in (f"report  {run}/report.html\n", f"run     {run}\n", f"  {program()} predict {run} IMAGE  "):
        assert words in out
    assert f"  {program()} train {run}/recipe.toml model.options.routing.iters=1  " in out


def test_the_tested_accuracy_is_that_of_the_run(run: Path, ask_json) -> None:
    document = ask_json("train", "--resume", run)
    assert document["accuracy"] == Run.open(run).results["test_accuracy"]
    assert document["report"] == str(run / "report.html")
    assert document["status"] == "finished"


def test_a_network_without_capsules_is_not_told_about_routing(cnn_run: Path, ask) -> None:
    code, out, _ = ask("train", "--resume", cnn_run)
    assert code == 0
    assert "routing" not in out
    assert "perturbations" not in out
    assert "Left out: this model has no decoder." in (cnn_run / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digit"], "unknown recipe 'digit'; did you mean 'digits'?"),
        (["digits", "mnist"], "recipe: expected one name or file, got digits, mnist"),
        (
            ["--resume", "r", "x=1"],
            "--resume: expected nothing but the run, whose folder holds its recipe, and perhaps trainer.epochs=N, "
            "got more words",
        ),
        (["--resume", "/no/run"], "run: expected a run folder with recipe.toml and run.json, got '/no/run'"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, ask) -> None:
    assert ask("train", *words) == (2, "", f"{message}\n")


def test_a_stopped_run_says_how_to_go_on(run: Path, ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    (stopped / "run.json").write_text('{"status": "stopped"}')
    (stopped / "recipe.toml").write_text((run / "recipe.toml").read_text())
    monkeypatch.setattr(train, "start", lambda recipe, folder, progress: Run.open(stopped), raising=False)
    words = f"stopped; go on with: {program()} train --resume {stopped}\n"
    assert ask("train") == (130, "", words)
    code, out, _ = ask("train", "--json")
    assert code == 130
    assert json.loads(out) == {"run": str(stopped), "status": "stopped"}


def test_ctrl_c_and_on(tmp_path: Path, pictures: Path) -> None:
    folder = tmp_path / "run"
    changes = [*TINY, "trainer.epochs=400", f"data.options.path={pictures}"]
    command = [sys.executable, "-m", "torchcaps", "train", "folder", *changes, "--out", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (folder / "metrics.csv").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == f"stopped; go on with: {program()} train --resume {folder}"
    assert "Traceback" not in err
    assert Run.open(folder).status == "stopped"
    # The end is near enough once the recipe asks for few epochs more than are done.
    done = len(Run.open(folder).metrics()["epoch"])
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 400", f"epochs = {done + 2}"))
    assert main(["train", "--resume", str(folder), "--quiet"]) == 0
    assert len(Run.open(folder).metrics()["epoch"]) == done + 2


def test_a_network_without_classes(pictures: Path, tmp_path: Path, ask, ask_json) -> None:
    words = ("model.name=transforming_autoencoder", "model.options={}", f"data.options.path={pictures}")
    document = ask_json("train", "folder", *TINY, *words, "--out", tmp_path / "run")
    assert document["loss"] > 0
    assert "accuracy" not in document
    code, out, err = ask("eval", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.startswith(f"loss {document['loss']:.4g} on ")
    picture = next((pictures / "eel").iterdir())
    words = "predict: expected a network that classifies, got transforming_autoencoder\n"
    assert ask("predict", tmp_path / "run", picture) == (2, "", words)
    assert ask("show", tmp_path / "run", "--what", "transformations")[0] == 0
