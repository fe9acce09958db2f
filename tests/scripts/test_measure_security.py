"""The measurements of docs/security.md, small: the tables are made of what the script writes."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_parts_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    part = {"seed": 1, "inputs": 3, "per_reader": {"idx": 1, "image": 2}, "cpu_seconds": 0.5, "findings": ["idx: x"]}
    other = {**part, "seed": 2, "inputs": 4, "per_reader": {"image": 4}, "findings": []}
    measured = importlib.import_module("measure_security").added([json.dumps(part), json.dumps(other)])
    assert measured == {
        "inputs": 7, "seeds": [1, 2], "findings": ["idx: x"], "cpu_seconds": 1.0, "per_reader": {"idx": 1, "image": 6},
    }  # fmt: skip


@pytest.mark.slow
def test_tables_are_made_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "security.json"
    words = ["--seeds", "1", "2", "--inputs", "640", "--requests", "60", "--output", str(file)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "measure_security.py"), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(file.read_text())
    assert table["fuzzing"]["inputs"] == sum(table["fuzzing"]["per_reader"].values()) == 1280
    assert table["attack"]["outcomes"] == {"answered": 60}
    assert all(row["peak_mb"] < 1000 for row in table["bombs"])
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    tables = importlib.import_module("make_tables")
    assert "| all | 1,280 |" in tables.fuzzing(file)
    assert "| ordinary requests | 60 |" in tables.attacked(file)
    assert "| PNG | 79,210,000 |" in tables.bombs(file)
