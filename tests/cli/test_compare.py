from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchcaps import experiments
from torchcaps.cli._args import program

from .conftest import TINY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison") / "out"


@pytest.fixture
def words(pictures: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("torchcaps.bench.step_memory.step_memory", lambda path: 12.5)
    changes = [*TINY, "trainer.epochs=1", f"data.options.path={pictures}"]
    return ["compare", "folder", *changes, "--routers", "dynamic, em", "--seeds", "1", "--out", str(folder)]


def test_table_document_and_figure(words: list[str], folder: Path, ask, ask_json) -> None:
    code, out, err = ask(*words)
    assert code == 0
    assert out.startswith("capsnet_small on folder; epochs: 1; runs of each router: 1\n")
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("dynamic", "em")] == ["dynamic", "em"]
    assert "one run of each: differences of less than" in out
    assert "6 test images" in out
    announced = [line for line in err.splitlines() if ", seed " in line]
    assert announced == ["1/2  dynamic, seed 0", "2/2  em, seed 0"]
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    # The second time everything is there already.
    document = ask_json(*words)
    assert document["folder"] == str(folder)
    saved = json.loads((folder / "compare.json").read_text())
    assert document["rows"] == saved["rows"]
    assert ask(*words, "--quiet")[2] == ""


@pytest.mark.parametrize("interrupt", [False, True])
def test_stopped_comparison_prints_how_to_resume(
    words: list[str], folder: Path, ask, monkeypatch: pytest.MonkeyPatch, interrupt: bool
) -> None:
    def stop(*args: object, **options: object) -> SimpleNamespace:
        if interrupt:
            raise KeyboardInterrupt
        return SimpleNamespace(status="stopped")

    monkeypatch.setattr(experiments, "compare", stop)
    code, out, err = ask(*words, "--test", "digits val_size=3")
    assert (code, out) == (130, "")
    changes = " ".join(words[2:-6])
    assert err == (
        f"stopped; resume with: {program()} compare folder {changes} --routers 'dynamic, em' --seeds 1 "
        f"--test 'digits val_size=3' --out {folder}\n"
    )
    assert json.loads(ask(*words, "--json")[1]) == {"folder": str(folder), "status": "stopped"}


def test_exit_code_if_all_fail(words: list[str], ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(plan, *args, **options):
        return (experiments.RunOutcome(planned, "failed", error="no") for planned in plan)

    monkeypatch.setitem(experiments.compare.__globals__, "run_grid", fail)
    code, out, _ = ask(*words[:-1], tmp_path)
    assert code == 1
    assert "seed 0: no" in out


def test_default_folder(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def stop(recipe: object, folder: Path, **options: object) -> SimpleNamespace:
        calls.extend([str(folder), options["routers"], options["seeds"]])
        return SimpleNamespace(status="stopped")

    monkeypatch.setattr(experiments, "compare", stop)
    assert ask("compare")[0] == 130
    assert calls == [str(Path("runs") / "compare-digits"), [], 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["digits", "mnist"], "recipe: expected one name or file, got digits, mnist"),
        (["--routers", "dynamik"], "unknown router 'dynamik'; did you mean 'dynamic'?"),
        (["--seeds", "0"], "seeds: expected at least 1, got 0"),
    ],
)
def test_errors(more: list[str], message: str, ask) -> None:
    assert ask("compare", *more) == (2, "", f"{message}\n")
