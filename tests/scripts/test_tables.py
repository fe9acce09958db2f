import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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


def test_the_readme_shows_what_was_measured():
    readme = (ROOT / "README.md").read_text()
    assert script("make_tables").update(readme) == readme, "run scripts/make_tables.py"


def test_marks_that_are_missing():
    with pytest.raises(ValueError, match=r"README\.md: expected the marks '<!-- results"):
        script("make_tables").update("no marks")


def test_a_row_has_mean_and_deviation(tmp_path):
    runs = [result(0.97, 0), result(0.99, 1)]
    (tmp_path / "a.json").write_text(json.dumps({"recipe": "a", "model": "m", "data": "d", "runs": runs}))
    line = script("make_tables").results(tmp_path).splitlines()[-1]
    assert line == "| `a` | `m` | 12,345 | 3 | 98.00 ± 1.41 % | 2 | 1.5 | 2 cores, a processor |"
