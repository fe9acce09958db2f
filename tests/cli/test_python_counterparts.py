"""docs/command_line.md: every command has a counterpart in Python that exists."""

from __future__ import annotations

import importlib
import re
import shlex
from argparse import Namespace
from functools import reduce
from pathlib import Path

import pytest

import torchcaps as tc
from torchcaps.cli._main import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
FUNCTIONS = dict(re.findall(r"^\| (`tc\.[\w.`, ]+`) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_a_counterpart(verb: str) -> None:
    assert verb in ROWS
    names = re.findall(r"\btc\.([\w.]+)", ROWS[verb])
    modules = re.findall(r"`(torchcaps\.\w+)`", ROWS[verb])
    assert names or modules
    for name in names:
        reduce(getattr, name.split("."), tc)
    for module in modules:
        importlib.import_module(module)


@pytest.mark.parametrize("names", FUNCTIONS)
def test_every_function_has_a_command(names: str) -> None:
    for name in re.findall(r"\btc\.([\w.]+)", names):
        assert callable(reduce(getattr, name.split("."), tc))
    commands = re.findall(r"`torchcaps (.*?)`", FUNCTIONS[names])
    assert commands or "--import" in FUNCTIONS[names]
    for command in commands:
        verb, *words = shlex.split(command)
        assert isinstance(VERBS[verb].parse(words), Namespace)


def test_table_of_functions_is_found() -> None:
    assert len(FUNCTIONS) >= 13
