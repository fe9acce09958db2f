"""How the site is built: `make docs`."""

from importlib.metadata import version as installed

project = "torchcaps"
project_copyright = "the torchcaps contributors"
version = release = installed("torchcaps")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "torchcaps"
