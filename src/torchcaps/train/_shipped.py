"""Tables in TOML that come with the package, one file each, or lie anywhere: recipes and reproductions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from torchcaps._registry import nearest
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.train._tables import build

T = TypeVar("T")


def shipped_names(kind: str) -> list[str]:
    """The names of all tables of a kind that come with the package.

    >>> "digits" in shipped_names("recipe")
    True
    """
    return sorted(Path(entry.name).stem for entry in _folder(kind).iterdir() if entry.name.endswith(".toml"))


def read_table(kind: str, source: str | Path) -> dict[str, Any]:
    """A table from a TOML file, or by the name of one that comes with the package."""
    path, origin = Path(source), f"{kind} '{source}'"
    if path.suffix == ".toml":
        try:
            return parse_table(path.read_text(encoding="utf-8"), origin)
        except OSError as error:
            raise ConfigError(f"{kind}: expected a TOML file, got '{source}' ({error.strerror})") from None
    names = shipped_names(kind)
    if str(source) not in names:
        raise UnknownNameError(f"unknown {kind} '{source}'{nearest(str(source), names)}")
    return parse_table((_folder(kind) / f"{source}.toml").read_text(encoding="utf-8"), origin)


def parse_table(text: str, origin: str) -> dict[str, Any]:
    """A table from TOML text; `origin` is what an error calls it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: expected TOML, got something else ({error})") from None


def build_all(cls: type[T], table: Mapping[str, Any], problems: list[str], origin: str) -> T:
    """A dataclass from a table; everything that is wrong with it, and the problems known before, in one ConfigError."""
    made = build(cls, table, problems)
    check_none(problems, origin)
    assert made is not None, "what could not be made has a problem"
    return made


def check_none(problems: list[str], origin: str) -> None:
    """Raise one ConfigError with all problems, where there are any."""
    if problems:
        raise ConfigError(f"{origin}: " + "\n  ".join(["", *problems] if len(problems) > 1 else problems))


def _folder(kind: str) -> Any:
    return resources.files("torchcaps") / f"{kind}s"
