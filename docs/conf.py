"""Configuration of the documentation, built by `make docs`."""

import re
import sys
import tomllib
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from public_names import PublicNames

project = "torchcaps"
project_copyright = "the torchcaps contributors"
version = release = installed("torchcaps")
extensions = [
    "mathml",
    "myst_parser",
    "outputs",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Without a description of their own, so that fields of a dataclass are not described twice.
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Shape"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
# Methods of Lightning have docstrings in another style.
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autosummary_generate = False
exclude_patterns = ["_build"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "torchcaps"
# Code of 120 columns fits; furo has a light and a dark mode, and a search.
html_static_path = ["_static"]
html_css_files = ["wide.css"]
_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
html_theme_options = {
    "source_repository": _project["urls"]["Repository"],
    "source_branch": "main",
    "source_directory": "docs/",
}


def escape_markup(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape docstrings: only `code` is markup, and examples and the names of arguments stay as they are."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            argument = re.match(r"\s+\*{0,2}\w+: ", line)
            start = argument[0] if argument else ""
            parts = re.split(r"(`[^`]+`)", line.removeprefix(start))
            lines[number] = start + "".join(
                f"`{part}`" if part.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts
            )


def setup(app: Any) -> None:
    """Connect the handlers; Sphinx calls this function."""
    app.add_directive("public-names", PublicNames)
    # Before napoleon, which turns sections into markup.
    app.connect("autodoc-process-docstring", escape_markup, priority=400)
