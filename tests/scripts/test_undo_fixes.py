"""The table of fixes and their tests: every fix is found, and every test exists."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("undo_fixes")


def test_every_fix_is_found_and_has_tests(script: Any) -> None:
    entries = script.fixes()
    levels = {"C": 1, "H": 6, "M": 8, "L": 8}
    assert {f"{level}{n + 1}" for level, count in levels.items() for n in range(count)} <= {
        entry["finding"] for entry in entries
    }
    for entry in entries:
        compile(script.undone(entry), entry["file"], "exec")
        assert entry["tests"]
        for test in entry["tests"]:
            file, name = test.split("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_fix_is_undone_and_restored(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SOURCE", tmp_path)
    file = tmp_path / "a.py"
    file.write_text("a = 1\nb = 2\n")
    entry = {"file": "a.py", "about": "b", "old": "\nb = 2\n", "new": ""}
    with script.without(entry):
        assert file.read_text() == "a = 1\n"
    assert file.read_text() == "a = 1\nb = 2\n"
    with pytest.raises(ValueError, match=r"a\.py: expected the fix 'b' once, got 0"):
        script.undone({**entry, "old": "c"})
