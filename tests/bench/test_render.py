from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.bench import read_result, render, run_case, summary, write_result
from torchcaps.bench.render import sweeps
from torchcaps.errors import DataError


@pytest.fixture
def result(toy, monkeypatch):
    toy(memory=True)
    memory = {"forward": 1.0, "both": 41.6}
    monkeypatch.setattr(
        "torchcaps.bench.run.measure_memory",
        lambda name, candidate, point: memory if candidate == "ours" else "killed by signal 9",
    )
    result = run_case("toy")
    result["machine"]["threads"] = 2
    # Fixed times: one second per iteration for ours, twelve for the slow candidate.
    for row in result["rows"]:
        for times in row.get("times", {}).values():
            seconds = row["point"]["iters"] * {"ours": 1.0, "slow": 12.0}[row["candidate"]]
            times.update(min=seconds, median=seconds + 1)
        if "gflops" in row:
            row["gflops"] = 7.0
    return result


def test_sweeps(result):
    assert sweeps(result) == {"batch": [1, 2], "iters": [1, 3]}


def test_summary(result):
    header, ours, slow, broken, large = summary(result)
    assert header == ["", "forward, ms", "both, ms", "relative time", "extra memory, MB", "GFLOP/s"]
    assert ours[0] == "ours"
    assert ours[3] == "1.00"
    assert ours[4] == "42"
    assert slow[1:4] == ["36000.0 (37000.0)", "36000.0 (37000.0)", "12.00"]
    assert slow[4] == "killed by signal 9"
    assert slow[5] == "7"
    assert broken[:5] == ["broken", "", "", "RuntimeError: no compiler", ""]
    assert large[3].startswith("MemoryError: needs about")


def test_one_thread_shows_the_time_of_the_processor(result, tmp_path):
    result["machine"]["threads"] = 1
    result["load"] = [7.5, None, 3.0]
    for row in result["rows"]:
        if "times" in row:
            row["processor"] = {task: {"min": 0.25, "median": 0.5} for task in row["times"]}
    assert summary(result)[1][1:3] == ["250.0 (500.0)", "250.0 (500.0)"]
    text = render(result, tmp_path)[0].read_text()
    assert "The time is that of the processor, at a load of 3 to 7.5." in text
    # Results of all threads, and those of earlier versions, have the time that passed.
    for row in result["rows"]:
        row.pop("processor", None)
    assert summary(result)[1][1] == "3000.0 (4000.0)"


def test_equal_results_give_equal_files(result, tmp_path):
    written = render(result, tmp_path / "one")
    assert [path.name for path in written] == ["toy.md", "toy.svg"]
    again = render(read_result(write_result(result, tmp_path)), tmp_path / "two")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    text = written[0].read_text()
    assert text.startswith("# A toy\n")
    assert "both in milliseconds by batch, other sizes as above:" in text
    assert "both in milliseconds by iters, other sizes as above:" in text
    assert "At batch 3, iters 4:" in text
    assert "| broken |" in text
    assert "![A toy](toy.svg)" in text
    assert all(line.count("|") == 7 for line in text.splitlines() if line.startswith("| slow"))


def test_one_point_has_no_figure(toy, tmp_path):
    toy()
    assert [path.name for path in render(run_case("toy", quick=True), tmp_path)] == ["toy.md"]


def test_missing_or_damaged_result(tmp_path):
    with raises_about(DataError, "none.json", "No such file"):
        read_result(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with raises_about(DataError, "bad.json"):
        read_result(tmp_path / "bad.json")
