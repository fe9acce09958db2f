from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchcaps.bench import CASES
from torchcaps.cli import main


@pytest.fixture
def measured(monkeypatch):
    """A run that takes no time: one candidate, one point."""
    times = {"step": {"min": 0.001, "median": 0.002, "rounds": 3}}
    row = {"point": {"batch": 1}, "candidate": "ours", "times": times}

    def run_case(name, *, quick, first, progress):
        progress(1, 1)
        return {
            "benchmark": name,
            "title": f"About {name}",
            "quick": quick,
            "date": "2026-01-01T00:00:00+00:00",
            "commit": None,
            "versions": {"torch": "2", "torchcaps": "0"},
            "machine": {"processor": "abacus", "threads": 2},
            "kernels": [],
            "rows": [row],
        }

    monkeypatch.setattr("torchcaps.bench.run_case", run_case)


def test_quick_run_writes_nothing(measured, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "dynamic", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "About dynamic" in out
    assert "1.0 (2.0)" in out
    assert list(tmp_path.iterdir()) == []


def test_results_are_written_and_rendered(measured, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench"]) == 0
    assert sorted(path.stem for path in (tmp_path / "benchmarks" / "results").iterdir()) == CASES.names()
    capsys.readouterr()
    assert main(["bench", "dynamic", "--render", "pages", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["pages/dynamic.md"]}
    (tmp_path / "benchmarks" / "results" / "em.json").unlink()
    assert main(["bench", "--render", "all", "--json"]) == 0
    written = [Path(path).stem for path in json.loads(capsys.readouterr().out)["written"]]
    assert written == [name for name in CASES if name != "em"]
    assert "| ours | 1.0 (2.0) | 1.00 |" in (tmp_path / "pages" / "dynamic.md").read_text()


def test_first_sizes_do_not_replace_results_of_all(measured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "dynamic", "--first"]) == 0
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json")] == [
        "benchmarks/results/first/dynamic.json"
    ]


def test_json_is_one_document(measured, capsys, tmp_path):
    assert main(["bench", "dynamic", "--json", "--out", str(tmp_path)]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result == json.loads((tmp_path / "dynamic.json").read_text())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dinamic"], "unknown benchmark 'dinamic'; did you mean 'dynamic'?"),
        (["--quick", "--render", "x"], "--quick: expected without --render, got both"),
        (["dynamic", "--out", "nowhere", "--render", "x"], "expected the result of a benchmark as JSON"),
        (
            ["--out", "nowhere", "--render", "x"],
            f"{CASES.names()[0]}.json: expected the result of a benchmark as JSON",
        ),
    ],
)
def test_errors_name_the_argument(words, message, capsys):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err
