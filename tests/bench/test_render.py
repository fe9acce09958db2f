from __future__ import annotations

import pytest

from torchcaps.bench import read_result, render, run_case, summary, write_result
from torchcaps.bench.render import sweeps
from torchcaps.errors import DataError


@pytest.fixture
def result(toy, monkeypatch):
    toy(memory=True)
    memory = {"forward": 1.0, "both": 41.6}
    monkeypatch.setattr(
        "torchcaps.bench.run.measure_memory",
        lambda name, contender, point: memory if contender == "ours" else "killed by signal 9",
    )
    return run_case("toy")


def test_axes_are_found_in_the_points(result):
    assert sweeps(result) == {"batch": [1, 2], "iters": [1, 3]}


def test_the_summary_compares_with_the_first(result):
    header, ours, slow, broken, large = summary(result)
    assert header == ["", "forward, ms", "both, ms", "times ours", "extra memory, MB", "GFLOP/s"]
    assert ours[0] == "ours"
    assert ours[3] == "1.00"
    assert ours[4] == "42"
    assert float(slow[3]) > 10
    assert slow[4] == "killed by signal 9"
    assert float(slow[5]) > 0
    assert broken[:5] == ["broken", "", "", "RuntimeError: no compiler", ""]
    assert large[3].startswith("MemoryError: needs about")


def test_tables_and_picture_are_written_and_the_same_each_time(result, tmp_path):
    written = render(result, tmp_path / "one")
    assert [path.name for path in written] == ["toy.md", "toy.svg"]
    again = render(read_result(write_result(result, tmp_path)), tmp_path / "two")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    text = written[0].read_text()
    assert text.startswith("# A toy\n")
    assert "both in milliseconds along batch, the rest as above:" in text
    assert "both in milliseconds along iters, the rest as above:" in text
    assert "At batch 3, iters 4:" in text
    assert "| broken |" in text
    assert "![A toy](toy.svg)" in text
    assert all(line.count("|") == 7 for line in text.splitlines() if line.startswith("| slow"))


def test_one_point_needs_no_picture(toy, tmp_path):
    toy()
    assert [path.name for path in render(run_case("toy", quick=True), tmp_path)] == ["toy.md"]


def test_a_missing_or_damaged_result_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none.json: expected the result of a benchmark, got none \(.*No such file"):
        read_result(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match=r"bad.json: expected the result of a benchmark"):
        read_result(tmp_path / "bad.json")
