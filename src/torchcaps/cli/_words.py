"""Arguments that several verbs share: run folders and key=value words."""

from __future__ import annotations

import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps.errors import ConfigError


def program() -> str:
    """What to type to get here again: the name where the shell finds it, else the path that was called."""
    script = Path(sys.argv[0])
    if shutil.which("torchcaps"):
        return "torchcaps"
    return str(script) if script.name == "torchcaps" else "python -m torchcaps"


def add_run(parser: ArgumentParser) -> None:
    """The argument RUN."""
    parser.add_argument("run", metavar="RUN", help="the folder of a run, as `torchcaps train` printed it")


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Options from `key=value` words; a value is read as TOML, or taken as a string.

    >>> read_options(["val_size=100", "path=my/pictures"])
    {'val_size': 100, 'path': 'my/pictures'}
    """
    from torchcaps.train._tables import parse_value

    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise ConfigError(f"option: expected key=value, got '{word}'")
        options[key] = parse_value(value)
    return options
