"""The reference pages: every package of the top level has one, with a table of all its names."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import torchcaps

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = [name for name in torchcaps.__all__ if inspect.ismodule(getattr(torchcaps, name))]


@pytest.fixture
def directive(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "public_names", raising=False)
    return importlib.import_module("public_names")


@pytest.mark.parametrize("package", [*PACKAGES, "types"])
def test_page_lists_every_public_name(directive: ModuleType, package: str) -> None:
    page = (DOCS / "reference" / f"{package}.md").read_text(encoding="utf-8")
    assert f".. public-names:: torchcaps.{package}\n" in page
    assert f".. automodule:: torchcaps.{package}\n" in page
    module = importlib.import_module(f"torchcaps.{package}")
    listed = [name for names in directive.summary(f"torchcaps.{package}").values() for name in names]
    public = [
        name
        for name in directive.public_names(f"torchcaps.{package}")
        if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))
        if getattr(module, name).__module__.startswith("torchcaps")
    ]
    assert sorted(listed) == sorted(public)
    hidden = re.findall(r":exclude-members: (.*)", page)
    assert not set(listed) & {name.strip() for names in hidden for name in names.split(",")}


def test_index_lists_packages_and_names_of_the_top_level() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    for name in torchcaps.__all__:
        if name in PACKAGES:
            assert f"(reference/{name}.md)" in page
        elif name != "__version__":
            assert re.search(rf"~torchcaps\.\w+\.{name}\n", page), name
