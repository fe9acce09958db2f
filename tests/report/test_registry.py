from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.report import figures
from torchcaps.report.registry import ENTRIES, FIGURES

MODULES = {path.stem for path in Path(figures.__path__[0]).glob("*.py")} - {"__init__"}


def test_entries_and_modules_correspond() -> None:
    assert {entry.name for entry in ENTRIES} == set(FIGURES) == MODULES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_modules_have_both_functions(entry) -> None:
    assert callable(entry.module.requires)
    assert callable(entry.module.draw)
    assert len(entry.title) > 5
    assert len(entry.summary) > 10


def test_registry_does_not_import_torch() -> None:
    code = (
        "import sys, torchcaps.cli.show, torchcaps.report.registry\n"
        "assert not {'torch', 'matplotlib', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_lists_every_figure() -> None:
    from torchcaps.cli.show import VERB

    text = " ".join(VERB.parser().format_help().split())
    for entry in ENTRIES:
        assert f"{entry.name}: {entry.summary}" in text
