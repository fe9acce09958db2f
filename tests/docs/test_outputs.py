from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .test_pages import DOCS, ROOT

CONF = f"""
import sys
sys.path.insert(0, {str(DOCS)!r})
extensions = ["myst_parser", "outputs"]
html_theme = "basic"
"""


def test_tutorials_show_what_their_notebooks_printed_and_drew(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser")
    (tmp_path / "tutorials").mkdir()
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.md").write_text("# Index\n\n[page](tutorials/ten_minutes.md)\n")
    page = (DOCS / "tutorials" / "ten_minutes.md").read_text(encoding="utf-8")
    (tmp_path / "tutorials" / "ten_minutes.md").write_text(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", page))
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    built = (tmp_path / "out" / "tutorials" / "ten_minutes.html").read_text(encoding="utf-8")
    notebook = json.loads((ROOT / "notebooks" / "ten_minutes.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    printed = [line for output in outputs if "text" in output for line in "".join(output["text"]).splitlines()]
    assert printed
    assert [line for line in printed if line not in built] == []
    assert built.count('src="data:image/png') == sum("image/png" in output.get("data", {}) for output in outputs) == 1
