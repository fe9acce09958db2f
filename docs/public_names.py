"""The directive `public-names`: the names of a package by group, each with the first sentence of its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective
from torch import nn

# Groups of modules by the end of their names.
MODULES = {r"Routing|Router": "Routers", r"Loss": "Losses", r"Decoder": "Decoders"}
ORDER = ("Modules", "Routers", "Losses", "Decoders", "Classes", "Functions", "Data sets", "Errors")


def public_names(package: str) -> list[str]:
    """Return the names that a package exports: `__all__`, or the classes and functions that it defines."""
    module = importlib.import_module(package)
    defined = [
        name
        for name, item in vars(module).items()
        if not name.startswith("_") and getattr(item, "__module__", None) == package
    ]
    return list(getattr(module, "__all__", defined))


def group(name: str, item: Any) -> str | None:
    """Return the group of a name, or None for constants and names of other packages."""
    if not getattr(item, "__module__", "").startswith("torchcaps"):
        return None
    if inspect.isclass(item) and issubclass(item, nn.Module):
        return next((title for end, title in MODULES.items() if re.search(f"({end})$", name)), "Modules")
    if inspect.isclass(item):
        return "Errors" if issubclass(item, Exception) else "Classes"
    if inspect.isfunction(item):
        is_loader = item.__module__.startswith("torchcaps.data.") and name.startswith("load_") and name != "load_data"
        return "Data sets" if is_loader else "Functions"
    return None


def summary(package: str) -> dict[str, list[str]]:
    """Return the public names of a package by group."""
    module = importlib.import_module(package)
    groups: dict[str, list[str]] = {}
    for name in public_names(package):
        title = group(name, getattr(module, name))
        if title is not None:
            groups.setdefault(title, []).append(name)
    return {title: groups[title] for title in ORDER if title in groups}


class PublicNames(SphinxDirective):
    """Insert one `autosummary` table per group of names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        (package,) = self.arguments
        lines = []
        for title, names in summary(package).items():
            entries = [f"   ~{package}.{name}" for name in names]
            lines += [f".. rubric:: {title}", "", ".. autosummary::", "   :nosignatures:", "", *entries, ""]
        node = nodes.container()
        self.state.nested_parse(StringList(lines, source=package), self.content_offset, node)
        return node.children
