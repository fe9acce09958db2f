from __future__ import annotations

import json

import pytest

from torchcaps.bench import run_case, write_result
from torchcaps.bench.run import KernelMismatchError


def test_result_has_provenance(toy, tmp_path):
    case = toy()
    seen = []
    result = run_case("toy", quick=True, progress=lambda done, total: seen.append((done, total)))
    assert result["benchmark"] == "toy"
    assert result["quick"] is True
    assert {"date", "commit", "versions", "machine", "kernels"} <= set(result)
    # Before the first point, and after each.
    assert len(result["load"]) == 2
    assert len(result["rows"]) == len(case.candidates)
    assert seen == [(0, 2), (1, 2), (2, 2)]
    path = write_result(result, tmp_path / "new" / "folder")
    assert path.name == "toy.json"
    assert json.loads(path.read_text()) == result


def test_all_points_are_measured(toy):
    case = toy()
    rows = run_case("toy")["rows"]
    assert [row["point"] for row in rows[:: len(case.candidates)]] == [dict(point) for point in case.points]


def test_memory_of_all_candidates(toy, monkeypatch):
    toy(memory=True)
    monkeypatch.setattr("torchcaps.bench.run.measure_memory", lambda name, candidate, point: {"both": 1.0})
    rows = {row["candidate"]: row for row in run_case("toy", quick=True)["rows"]}
    assert rows["ours"]["memory"] == {"both": 1.0}
    assert "memory" not in rows["broken"]


def test_kernel_mismatch(toy):
    def check():
        raise AssertionError("poses differ by 0.3")

    toy(check=check, candidates=())
    with pytest.raises(KernelMismatchError, match=r"^toy: [^\n]*\nposes differ by 0\.3"):
        run_case("toy")
