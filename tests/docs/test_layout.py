from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from .test_pages import DOCS

CONF = f"""
extensions = ["myst_parser"]
html_theme = "furo"
html_static_path = [{str(DOCS / "_static")!r}]
html_css_files = ["wide.css"]
"""
CODE = "first = second  # " + "a comment of a long line, " * 8


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with a list of its sections, long lines of code and a wide table."""
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("layout")
    table = "\n".join(f"|{' cell |' * 30}" if line != 1 else f"|{'---|' * 30}" for line in range(4))
    text = f"# Title\n\n## First section\n\n```python\n{CODE}\n```\n\n## Second section\n\n{table}\n"
    (folder / "conf.py").write_text(CONF)
    (folder / "index.md").write_text(text)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(folder), str(folder / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return (folder / "out" / "index.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_never_scroll_sideways(built: str, browser: Any, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(built)
    for width in (320, 390, 768, 1024, 1100, 1280, 1366, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    page.close()
