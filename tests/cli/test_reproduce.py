from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import torchcaps.experiments
from refusing import refused
from torchcaps.cli._args import program
from torchcaps.experiments import list_reproductions
from torchcaps.report.registry import FIGURES, FigureEntry

from .conftest import TINY

RESULTS = Path(__file__).parents[2] / "results"
ENTRY = """
name = "mine"
title = "Stripes"
source = "Somebody 2026"
note = "Seconds."
metric = "accuracy"
figures = ["training_loss"]

[[networks]]
label = "CNN"
recipe = "folder"
changes = ["model.name=cnn_small", "model.options={}"]
paper = { accuracy = 99 }

[[networks]]
label = "Capsules"
recipe = "folder"
changes = ["model.options.decoder=none"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def words(pictures: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "mine.toml").write_text(ENTRY)
    changes = [*TINY, "trainer.epochs=1", f"data.options.path={pictures}"]
    return ["reproduce", str(tmp_path / "mine.toml"), *changes, "--out", str(folder)]


def test_table_report_and_figures(words: list[str], folder: Path, ask, ask_json) -> None:
    code, out, err = ask(*words)
    assert code == 0
    # It is a trial: the note is about the unchanged experiment.
    heading, source, *_ = out.splitlines()
    assert heading.startswith("TRIAL with ")
    assert heading.endswith("Stripes")
    assert "trainer.epochs=1" in heading
    assert source == "Somebody 2026."
    assert "TRIAL with" in (folder / "report-mine.html").read_text()
    lines = [line.split() for line in out.splitlines()]
    assert [line[:3] for line in lines if line and line[0] in ("CNN", "Capsules")] == [
        ["CNN", "accuracy", "↑"],
        ["Capsules", "accuracy", "↑"],
    ]
    assert "networks: 2, runs: 2, finished: 0" in err
    announced = [line for line in err.splitlines() if ", seed " in line or line.startswith("drawing")]
    assert announced == ["1/2  CNN, seed 0", "2/2  Capsules, seed 0", "drawing training_loss"]
    for part in ("reproduction-mine.json", "report-mine.html", "figures/mine-training_loss.png"):
        assert (folder / part).exists()
        assert str(folder / part) in out
    # The second time everything is there already.
    document = ask_json(*words)
    assert document["report"] == str(folder / "report-mine.html")
    assert document["rows"] == json.loads((folder / "reproduction-mine.json").read_text())["rows"]
    assert ask(*words, "--quiet")[2] == ""


def test_only_and_report(words: list[str], folder: Path, ask) -> None:
    code, out, _ = ask(*words, "--report")
    assert code == 1
    assert "CNN" in out
    assert not list(folder.glob("folder-*"))
    assert ask(*words, "--only", "C*N", "--quiet")[0] == 0
    (run,) = folder.glob("folder-*")
    code, out, _ = ask(*words, "--report", "--json")
    result = json.loads(out)
    assert (code, result["status"]) == (0, "partial")
    statuses = [(row["runs"][0]["status"], row["runs"][0]["folder"] == run.name) for row in result["rows"]]
    assert statuses == [("finished", True), ("not run", False)]


def test_failing_figure(words: list[str], ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FigureEntry, context: object) -> None:
        raise RuntimeError("no ink")

    assert "training_loss" in FIGURES
    monkeypatch.setattr(FigureEntry, "requires", fail)
    code, out, _ = ask(*words, "--only", "CNN", "--quiet")
    assert code == 0
    assert "figure training_loss is not available: RuntimeError: no ink\n" in out


@pytest.mark.parametrize("interrupt", [False, True])
def test_stopped_reproduction_prints_how_to_resume(
    words: list[str], folder: Path, ask, monkeypatch: pytest.MonkeyPatch, interrupt: bool
) -> None:
    def stop(*args: object, **options: object) -> SimpleNamespace:
        if interrupt:
            raise KeyboardInterrupt
        return SimpleNamespace(status="stopped")

    monkeypatch.setattr(torchcaps.experiments, "reproduce", stop)
    code, out, err = ask(*words, "--only", "Caps*", "--only", "CNN")
    assert (code, out) == (130, "")
    given = " ".join(words[1:-2])
    assert err.endswith(
        f"stopped; resume with: {program()} reproduce {given} --only 'Caps*' --only CNN --out {folder}\n"
    )
    assert json.loads(ask(*words, "--json")[1]) == {"folder": str(folder), "status": "stopped"}
    assert " --report " in ask(*words, "--report")[2]


def test_folder_of_changed_recipes(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def stop(entry: object, folder: Path, **options: Any) -> SimpleNamespace:
        calls.append((str(folder), options["train"], options["changes"]))
        return SimpleNamespace(status="stopped")

    monkeypatch.setattr(torchcaps.experiments, "reproduce", stop)
    ask("reproduce", "mnist_table1")
    ask("reproduce", "mnist_table1", "trainer.epochs=1", "--only", "CapsNet, 1*")
    assert calls[0] == (str(Path("runs") / "reproduce"), None, [])
    labels = [f"CapsNet, 1 iteration, {what}" for what in ("reconstruction", "no reconstruction")]
    assert calls[1] == (str(Path("runs") / "reproduce-trial"), labels, ["trainer.epochs=1"])
    # Precision does not change the experiment.
    ask("reproduce", "mnist_table1", "trainer.precision=bf16-mixed")
    assert calls[2] == (str(Path("runs") / "reproduce"), None, ["trainer.precision=bf16-mixed"])


def test_list(ask, ask_json, tmp_path: Path) -> None:
    file = tmp_path / "reproduction-mnist_table1.json"
    shutil.copy(RESULTS / "reproduce-mnist_table1.json", file)
    code, out, err = ask("reproduce", "--out", tmp_path)
    assert (code, err) == (0, "")
    recorded = json.loads(file.read_text())["rows"]
    errors = [f"{row['columns']['error']['mean']:.2f}" for row in recorded if row["columns"]]
    assert errors
    for error in errors:
        # Recorded and yours.
        assert any(line.split().count(error) == 2 for line in out.splitlines())
    entries = ask_json("reproduce", "--out", tmp_path)
    assert [entry["name"] for entry in entries] == list_reproductions()
    (table,) = (entry for entry in entries if entry["name"] == "mnist_table1")
    assert table["result"] == str(file)
    assert [network["ours"] for network in table["networks"]] == [row["columns"] for row in recorded]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["affine", "attacks"], "reproduction: expected one name or file, got affine, attacks"),
        (["seed=1"], "reproduction: expected one name or file, got only 'seed=1'"),
        (["afine"], "unknown reproduction 'afine'; did you mean 'affine'?"),
        (["affine", "--only", "CN"], "unknown network 'CN' of affine; known: 'CapsNet', 'Matrix"),
        (["--report"], "reproduction: expected a name with --only, --report and --remeasure"),
        (["--remeasure"], "reproduction: expected a name with --only, --report and --remeasure"),
    ],
)
def test_errors(more: list[str], message: str, ask) -> None:
    code, out, err = ask("reproduce", *more)
    assert (code, out) == (2, "")
    assert err.startswith(message)


def test_recorded_results_are_shown(ask, ask_json, tmp_path: Path) -> None:
    code, out, _ = ask("reproduce", "mnist_table1", "--report", "--out", tmp_path)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("CNN ")]
    recorded = json.loads((RESULTS / "reproduce-mnist_table1.json").read_text())["rows"][-1]["columns"]["error"]["mean"]
    assert line.split()[:5] == ["CNN", "error", "↓", "(0.39)", f"{recorded:.2f}"]
    entries = {entry["name"]: entry for entry in ask_json("reproduce", "--out", tmp_path)}
    network = entries["mnist_efficient"]["networks"][0]
    assert network["recorded"]["columns"]["error"]["mean"] == pytest.approx(0.43)
    assert network["recorded"]["minutes"] > 0


def test_needs_and_cost_before_the_start(ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchcaps.experiments, "reproduce", lambda *args, **options: SimpleNamespace(status="stopped"))
    monkeypatch.setattr("torchcaps.cli._data.list.local_files_of", lambda name: "none")
    _, _, err = ask("reproduce", "mnist_table1", "--only", "CNN", "--out", tmp_path)
    assert "networks: 1, runs: 1, finished: 0" in err
    assert "15 minutes" in err
    assert "data download mnist" in err
    _, _, err = ask("reproduce", "mnist_table1", "epochs=1", "--out", tmp_path)
    assert err.startswith("TRIAL with epochs=1")


def test_unknown_network_is_quoted(ask) -> None:
    err = refused(ask, "reproduce", "mnist_table1", "--only", "Cnn", about=["'Cnn'"])
    assert "'CapsNet, 1 iteration, reconstruction', 'CapsNet, 1 iteration, no reconstruction', 'CNN'" in err
