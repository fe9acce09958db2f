import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torchcaps.bench.compare_table import summarise

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(accuracy: float, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "parameters": 12345,
        "epochs": 3,
        "seconds": 90.0,
        "results": {"test_accuracy": accuracy},
        "machine": {"cores": 2, "processor": "a processor"},
    }


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md", "docs/models.md"])
def test_the_pages_show_what_was_measured(page):
    text = (ROOT / page).read_text()
    assert script("make_tables").update(text, page) == text, "run scripts/make_tables.py"


def test_marks_that_are_missing():
    with pytest.raises(ValueError, match=r"README\.md: expected the marks '<!-- results"):
        script("make_tables").update("no marks")
    with pytest.raises(ValueError, match=r"docs/comparison\.md: expected the marks '<!-- comparison"):
        script("make_tables").update("no marks", "docs/comparison.md")


def comparison(status: str) -> dict[str, Any]:
    return {
        "comparison": "tiny",
        "status": status,
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789abcdef",
        "versions": {"torchcaps": "0.1.0", "torch": "2.13.0"},
        "machine": {"processor": "a processor", "threads": 2},
        "seeds": [0, 1],
        "tests": [],
        "recipe": {"model": {"name": "m"}, "data": {"name": "d"}, "trainer": {"epochs": 3}},
        "rows": [summarise("dynamic", {}, [{"seed": seed, "status": "failed", "error": "no"} for seed in (0, 1)])],
    }


def test_a_comparison_goes_into_the_docs(tmp_path):
    tables = script("make_tables")
    assert tables.comparison(tmp_path) == "No comparison has been recorded yet."
    (tmp_path / "compare.json").write_text(json.dumps(comparison("finished")))
    assert tables.enter(tmp_path, tmp_path, tmp_path) == tmp_path / "compare-tiny.json"
    assert (tmp_path / "compare-tiny.svg").read_text().startswith("<?xml")
    text = tables.comparison(tmp_path)
    assert text.startswith("## tiny\n\n`m` on `d`, 3 epochs, seeds 0, 1; a processor, 2 threads, torch 2.13.0")
    assert "| dynamic |" in text
    assert "(images/compare-tiny.svg)" in text


def test_the_readme_does_not_take_a_comparison_for_a_run(tmp_path):
    (tmp_path / "compare-tiny.json").write_text(json.dumps(comparison("finished")))
    assert len(script("make_tables").results(tmp_path).splitlines()) == 2


def test_a_comparison_that_is_not_finished(tmp_path):
    (tmp_path / "compare.json").write_text(json.dumps(comparison("stopped")))
    with pytest.raises(ValueError, match=r"expected a finished comparison, got one that is stopped; run it again"):
        script("make_tables").enter(tmp_path, tmp_path, tmp_path)


def test_a_row_has_mean_and_deviation(tmp_path):
    runs = [result(0.97, 0), result(0.99, 1)]
    (tmp_path / "a.json").write_text(json.dumps({"recipe": "a", "model": "m", "data": "d", "runs": runs}))
    line = script("make_tables").results(tmp_path).splitlines()[-1]
    assert line == "| `a` | `m` | 12,345 | 3 | 98.00 ± 1.41 % | 2 | 1.5 | 2 cores, a processor |"
