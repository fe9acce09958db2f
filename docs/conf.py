"""How the site is built: `make docs`."""

import re
from importlib.metadata import version as installed
from typing import Any

project = "torchcaps"
project_copyright = "the torchcaps contributors"
version = release = installed("torchcaps")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "torchcaps"


def plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain sentences with `code` and formulas: nothing else in them is markup; examples stay."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = re.split(r"(`[^`]+`)", line)
            lines[number] = "".join(
                f"`{part}`" if part.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts
            )


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain_text)
