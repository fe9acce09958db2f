from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CONF = f"""
import sys
sys.path.insert(0, {str(DOCS)!r})
extensions = ["myst_parser", "mathml"]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "amsmath"]
html_theme = "basic"
"""


def formulas() -> list[str]:
    texts = [file.read_text() for file in sorted(DOCS.rglob("*.md"))]
    plain = [re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL) for text in texts]
    return sorted({found.strip("$") for text in plain for found in re.findall(r"\$\$[^$]+\$\$|\$[^$\n]+\$", text)})


def test_every_formula_becomes_mathml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from mathml import to_mathml  # pyright: ignore[reportMissingImports]

    assert formulas()
    for formula in formulas():
        element = ElementTree.fromstring(to_mathml(formula, block=True))
        assert element.tag.endswith("math")
        # A command that is not known would stay in the text.
        assert "\\" not in "".join(element.itertext())


def test_page_with_formulas_needs_no_other_host(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "index.md").write_text("# Formulas\n\nInline $\\hat u_{j \\mid i}$.\n\n$$s_j = \\sum_i c_{ij}$$\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<math ") == 2
    assert not re.findall(
        r'(?:src|href)="(?:https?:)?//(?!www\.sphinx-doc)[^"]*"', page.replace("https://github.com", "")
    )
    assert "cdn" not in page
