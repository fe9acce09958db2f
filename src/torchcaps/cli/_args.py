"""Arguments that several commands share: run folders, recipes and key=value overrides."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps.errors import ConfigError


class Words(NamedTuple):
    """Positional arguments of a command, split into names and overrides."""

    names: list[str]
    overrides: list[str]


def split_words(words: Sequence[str]) -> Words:
    """Split positional arguments into names or paths, and key=value overrides.

    An argument with `=` is an override, unless it is a path: unless it exists, has a slash before the `=`, or ends in
    `.toml` without a dotted key.

    Args:
        words: Positional arguments.

    Returns:
        Names and overrides, each in the given order.

    Example:
        >>> split_words(["digits", "trainer.epochs=5", "lr=0.1/recipe.toml"])
        Words(names=['digits', 'lr=0.1/recipe.toml'], overrides=['trainer.epochs=5'])
    """
    names, overrides = [], []
    for word in words:
        (overrides if _is_override(word) else names).append(word)
    return Words(names, overrides)


def _is_override(word: str) -> bool:
    key, equals, _ = word.partition("=")
    if not equals or "/" in key or os.sep in key or (word.endswith(".toml") and "." not in key):
        return False
    return not os.path.lexists(word)


def options_to_overrides(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Write options that are keys of a recipe as overrides: `--epochs 5` or `--epochs=5` as `epochs=5`.

    Args:
        words: Arguments of a command.
        options: Options of the command, which are left as they are.

    Returns:
        The arguments; an option that is not a key of a recipe either stays as it is.

    Example:
        >>> options_to_overrides(["digits", "--epochs", "5", "--batch-size=32", "--out", "runs/a"], ["--out"])
        ['digits', 'epochs=5', 'batch_size=32', '--out', 'runs/a']
    """
    rewritten: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        key = option[2:].replace("-", "_")
        if not word.startswith("--") or not key or option in options or not _is_recipe_key(key):
            rewritten.append(word)
            continue
        value = value if equals else next(rest, None)
        if value is None or (not equals and value.startswith("--")):
            raise ConfigError(f"{option}: expected a value after it (it stands for {key}=VALUE of the recipe)")
        rewritten.append(f"{key}={value}")
    return rewritten


def key_options() -> list[str]:
    """Return the keys of recipes as options: `--batch-size` for `batch_size`.

    Returns:
        The options.
    """
    from torchcaps.train.recipe import short_recipe_keys

    return [f"--{key.replace('_', '-')}" for key in sorted(short_recipe_keys())]


def _is_recipe_key(key: str) -> bool:
    from torchcaps.train.recipe import is_recipe_key

    return is_recipe_key(key)


def one_name(words: Sequence[str], argument: str) -> tuple[str | None, list[str]]:
    """Return the name among positional arguments, or None, and the overrides.

    Args:
        words: Positional arguments.
        argument: What the name stands for, for the message.

    Returns:
        The name or path if one is given, and the overrides.

    Raises:
        ConfigError: If more than one name is given.
    """
    names, overrides = split_words(words)
    if len(names) > 1:
        raise ConfigError(f"{argument}: expected one name or file, got {', '.join(names)}")
    return (names[0] if names else None), overrides


def program() -> str:
    """Return how the user calls this program: its name if it is on the PATH, else the path that was called."""
    script = Path(sys.argv[0])
    if shutil.which("torchcaps"):
        return "torchcaps"
    return str(script) if script.name == "torchcaps" else "python -m torchcaps"


def add_run(parser: ArgumentParser) -> None:
    """Add the argument RUN."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, as printed by `torchcaps train`")


def add_recipe(parser: ArgumentParser) -> None:
    """Add the arguments RECIPE and key=value."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RECIPE key=value",
        help="name or TOML file of a recipe (default: digits; `torchcaps recipes` lists them), or a folder of images, "
        "and overrides of its values",
    )


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse key=value arguments.

    Args:
        words: Arguments; a value is read as TOML, or as a string if it is not valid TOML.

    Returns:
        The values by key.

    Raises:
        ConfigError: If an argument is not of the form key=value.

    Example:
        >>> read_options(["val_size=100", "path=my/images"])
        {'val_size': 100, 'path': 'my/images'}
    """
    from torchcaps.config import parse_value

    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise ConfigError(f"option: expected key=value, got '{word}'")
        options[key] = parse_value(value)
    return options
