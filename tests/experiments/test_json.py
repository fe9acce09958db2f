from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from raising import raises_about
from torchcaps.errors import DataError
from torchcaps.experiments import Comparison, ReproductionResult, read_json, write_json

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("reproduce-*.json")), ids=lambda file: file.stem)
def test_recorded_reproductions(file: Path, tmp_path: Path) -> None:
    result = read_json(ReproductionResult, file)
    assert f"reproduce-{result.name}" == file.stem
    write_json(tmp_path / "copy.json", result)
    assert (tmp_path / "copy.json").read_text() == file.read_text()


@pytest.mark.parametrize("file", sorted(RESULTS.glob("compare-*.json")), ids=lambda file: file.stem)
def test_recorded_comparisons(file: Path, tmp_path: Path) -> None:
    result = read_json(Comparison, file)
    assert f"compare-{result.name}" == file.stem
    write_json(tmp_path / "copy.json", result)
    assert (tmp_path / "copy.json").read_text() == file.read_text()


def test_nested_values(tmp_path: Path) -> None:
    first = read_json(Comparison, next(RESULTS.glob("compare-*.json")))
    changed = replace(first, rows=[replace(first.rows[0], entropy=None, tests={})])
    write_json(tmp_path / "new" / "x.json", changed)
    assert read_json(Comparison, tmp_path / "new" / "x.json") == changed


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"router": 1})])
def test_other_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with raises_about(DataError, "x.json", "Comparison"):
        read_json(Comparison, tmp_path / "x.json")
    with raises_about(DataError, "missing.json"):
        read_json(Comparison, tmp_path / "missing.json")
