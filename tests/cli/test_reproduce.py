from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import torchcaps.reproduce
from torchcaps.cli._words import program
from torchcaps.reproduce import FIGURES, list_reproductions
from torchcaps.viz import Figure

from .conftest import TINY

ENTRY = """
name = "mine"
title = "Stripes"
source = "Nobody 2026"
note = "Seconds."
measure = "accuracy"
figures = ["stripes"]

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
    monkeypatch.setitem(FIGURES._items, "stripes", lambda runs: Figure())
    (tmp_path / "mine.toml").write_text(ENTRY)
    changes = [*TINY, "trainer.epochs=1", f"data.options.path={pictures}"]
    return ["reproduce", str(tmp_path / "mine.toml"), *changes, "--out", str(folder)]


def test_a_table_a_report_and_pictures(words: list[str], folder: Path, ask, ask_json) -> None:
    code, out, err = ask(*words)
    assert code == 0
    assert out.startswith("Stripes\nNobody 2026. Seconds.\n")
    lines = [line.split() for line in out.splitlines()]
    assert [line[:3] for line in lines if line and line[0] in ("CNN", "Capsules")] == [
        ["CNN", "accuracy", "99"],
        ["Capsules", "accuracy", next(line[2] for line in lines if line and line[0] == "Capsules")],
    ]
    told = [line for line in err.splitlines() if not line.startswith("epoch")]
    assert told == ["1/2  CNN, seed 0", "2/2  Capsules, seed 0", "drawing stripes"]
    for part in ("reproduction-mine.json", "report-mine.html", "pictures/mine-stripes.png"):
        assert (folder / part).exists()
        assert str(folder / part) in out
    # The second time everything is there already.
    document = ask_json(*words)
    assert document["report"] == str(folder / "report-mine.html")
    assert document["rows"] == json.loads((folder / "reproduction-mine.json").read_text())["rows"]
    assert ask(*words, "--quiet")[2] == ""


def test_some_networks_and_a_report_of_what_there_is(words: list[str], folder: Path, ask) -> None:
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


def test_a_picture_that_cannot_be_drawn(words: list[str], ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(runs: object) -> Figure:
        raise RuntimeError("no ink")

    monkeypatch.setitem(FIGURES._items, "stripes", fail)
    code, out, _ = ask(*words, "--only", "CNN", "--quiet")
    assert code == 0
    assert "stripes was not drawn: RuntimeError: no ink\n" in out


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_stopped_one_says_how_to_go_on(
    words: list[str], folder: Path, ask, monkeypatch: pytest.MonkeyPatch, interrupt: bool
) -> None:
    def stop(*args: object, **options: object) -> dict[str, str]:
        if interrupt:
            raise KeyboardInterrupt
        return {"status": "stopped"}

    monkeypatch.setattr(torchcaps.reproduce, "reproduce", stop)
    code, out, err = ask(*words, "--only", "Caps*", "--only", "CNN")
    assert (code, out) == (130, "")
    given = " ".join(words[1:-2])
    assert err == (
        f"stopped; the same command goes on: {program()} reproduce {given} --only 'Caps*' --only CNN --out {folder}\n"
    )
    assert json.loads(ask(*words, "--json")[1]) == {"folder": str(folder), "status": "stopped"}
    assert " --report " in ask(*words, "--report")[2]


def test_changes_have_a_folder_of_their_own(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def stop(entry: object, folder: Path, **options: Any) -> dict[str, str]:
        asked.append((str(folder), options["train"], options["changes"]))
        return {"status": "stopped"}

    monkeypatch.setattr(torchcaps.reproduce, "reproduce", stop)
    ask("reproduce", "mnist_table1")
    ask("reproduce", "mnist_table1", "trainer.epochs=1", "--only", "CapsNet, 1*")
    assert asked[0] == (str(Path("runs") / "reproduce"), None, [])
    labels = [f"CapsNet, 1 iteration, {what}" for what in ("reconstruction", "no reconstruction")]
    assert asked[1] == (str(Path("runs") / "reproduce-trial"), labels, ["trainer.epochs=1"])
    # How it is computed makes no other experiment of it.
    ask("reproduce", "mnist_table1", "trainer.precision=bf16-mixed")
    assert asked[2] == (str(Path("runs") / "reproduce"), None, ["trainer.precision=bf16-mixed"])


def test_all_are_listed_with_what_was_measured(ask, ask_json, tmp_path: Path) -> None:
    row = {"label": "CNN", "measured": {"error": {"mean": 0.5, "deviation": None, "count": 1}}}
    file = tmp_path / "reproduction-mnist_table1.json"
    file.write_text(json.dumps({"rows": [row]}))
    code, out, err = ask("reproduce", "--out", tmp_path)
    assert (code, err) == (0, "")
    line = next(line for line in out.splitlines() if line.endswith("0.50"))
    assert line.split() == ["CNN", "error", "0.39", "error", "0.50"]
    entries = ask_json("reproduce", "--out", tmp_path)
    assert [entry["name"] for entry in entries] == list_reproductions()
    (table,) = (entry for entry in entries if entry["name"] == "mnist_table1")
    assert table["result"] == str(file)
    assert [bool(network["measured"]) for network in table["networks"]] == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["affine", "attacks"], "reproduction: expected one name or file, got affine, attacks"),
        (["seed=1"], "reproduction: expected one name or file, got 'seed=1' alone"),
        (["afine"], "unknown reproduction 'afine'; did you mean 'affine'?"),
        (["affine", "--only", "CN"], "unknown network 'CN' of affine; did you mean 'CNN'?"),
        (["--report"], "reproduction: expected a name beside --only, --report and --again, got none"),
        (["--again"], "reproduction: expected a name beside --only, --report and --again, got none"),
    ],
)
def test_mistakes_are_named(more: list[str], message: str, ask) -> None:
    assert ask("reproduce", *more) == (2, "", f"{message}\n")
