"""TOML tables to frozen dataclasses, with all mistakes in one error, and back to TOML."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torchcaps._registry import nearest
from torchcaps.errors import ConfigError, TorchcapsError

T = TypeVar("T")
# The longest recipe has 2 kB. A table's name with n dots takes tomllib a time that grows with the square of n.
MAX_BYTES, MAX_DOTS = 2**20, 1000
_WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def parse_toml(content: str | bytes, origin: str) -> dict[str, Any]:
    """Parse TOML.

    Args:
        content: The text, or its UTF-8 bytes.
        origin: Name of the source in error messages.

    Returns:
        The table.

    Raises:
        ConfigError: If the content is not TOML in UTF-8.

    Example:
        >>> parse_toml("seed = 1", "recipe")
        {'seed': 1}
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        if len(text) > MAX_BYTES or any(line.count(".") > MAX_DOTS for line in text.splitlines()):
            raise ConfigError(f"{origin}: expected at most {MAX_BYTES:,} bytes and {MAX_DOTS} dots a line, got more")
        return tomllib.loads(text)
    except ConfigError:
        raise
    # Integers of thousands of digits are a ValueError, tables nested thousands deep a RecursionError.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: expected TOML, got something else ({error})") from None


def from_table(cls: type[T], table: Mapping[str, Any], problems: list[str], origin: str) -> T:
    """Make a dataclass from a table.

    A field may have the metadata `least` (smallest value allowed) or `above` (a bound that is not allowed itself).

    Args:
        cls: The dataclass; its fields may be dataclasses.
        table: The values.
        problems: Problems found before.
        origin: Name of the source in the error message.

    Returns:
        An instance of `cls`.

    Raises:
        ConfigError: If there is any problem: all of them in one error.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     x: int = 0
        >>> problems: list[str] = []
        >>> from_table(Point, {"x": 2}, problems, "point").x, problems
        (2, [])
    """
    made = _build(cls, table, problems)
    raise_problems(problems, origin)
    assert made is not None, "a problem is recorded for everything that cannot be built"
    return made


def raise_problems(problems: list[str], origin: str) -> None:
    """Raise one error with all problems, if there are any.

    Args:
        problems: Descriptions of the problems.
        origin: Name of the source.

    Raises:
        ConfigError: If there are problems.

    Example:
        >>> raise_problems([], "recipe")
    """
    if problems:
        raise ConfigError(f"{origin}: " + "\n  ".join(["", *problems] if len(problems) > 1 else problems))


def _build(cls: type[T], table: Mapping[str, Any], problems: list[str], at: str = "") -> T | None:
    """Make a dataclass from a table, or add to `problems` and return None."""
    before = len(problems)
    known = {field.name: field for field in fields(cls)}  # pyright: ignore[reportArgumentType]
    hints = get_type_hints(cls)
    problems += [
        f"unknown key '{at}{key}'{nearest(at + key, [at + name for name in known])}"
        for key in table
        if key not in known
    ]
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in table:
            values[name] = _check(table[name], hints[name], field.metadata, problems, at + name)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{at}{name}: expected {_words(hints[name])}, but the key is missing")
    if len(problems) > before:
        return None
    try:
        return cls(**values)
    except TorchcapsError as error:
        problems.append(f"{at}{error}")
        return None


def _check(value: Any, hint: Any, bounds: Mapping[str, Any], problems: list[str], at: str) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, Mapping):
            return _build(hint, value, problems, f"{at}.")
        problems.append(f"{at}: expected a table, got {value!r}")
    elif not _fits(value, hint):
        problems.append(f"{at}: expected {_words(hint)}, got {value!r}")
    elif "least" in bounds and value < bounds["least"]:
        problems.append(f"{at}: expected at least {bounds['least']}, got {value!r}")
    elif "above" in bounds and value <= bounds["above"]:
        problems.append(f"{at}: expected a number above {bounds['above']}, got {value!r}")
    elif get_origin(hint) is list:
        inner = get_args(hint)[0]
        return [_check(item, inner, {}, problems, f"{at}[{place}]") for place, item in enumerate(value)]
    elif get_origin(hint) is dict:
        inner = get_args(hint)[1]
        return {key: _check(item, inner, {}, problems, f"{at}.{key}") for key, item in value.items()}
    if hint is not float or type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        problems.append(f"{at}: expected a number, got an integer of {value.bit_length()} bits")
        return value


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint is float:
        return (type(value) is int and abs(value) < 2**1023) or (type(value) is float and math.isfinite(value))
    # In Python a bool is an int; in a recipe it is not.
    return type(value) is (origin or hint)


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(get_args(hint))
    if origin in (Union, UnionType):
        return " or ".join(_words(option) for option in get_args(hint) if option is not NoneType)
    return _WORDS.get(origin or hint, "a table")


def parse_value(text: str) -> Any:
    """Parse a TOML value; anything else, and a date, is taken as a string.

    Args:
        text: The text.

    Returns:
        The value.

    Example:
        >>> parse_value("0.01"), parse_value("[1, 2]"), parse_value("my/folder")
        (0.01, [1, 2], 'my/folder')
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, date | datetime | time) else value


def override(table: dict[str, Any], text: str) -> None:
    """Set `a.b.c=value` in nested tables.

    A string in place of a table becomes the `name` of one. A new name inside of `options` clears its table, which held
    the options of the old name.

    Args:
        table: The tables, changed in place.
        text: Key and value.

    Raises:
        ConfigError: If the text is not key=value or a key leads through a value that is not a table.

    Example:
        >>> table = {"options": {"routing": "dynamic"}}
        >>> override(table, "options.routing.iters=1")
        >>> table
        {'options': {'routing': {'name': 'dynamic', 'iters': 1}}}
    """
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override: expected key=value, got '{text}'")
    for i, part in enumerate(parts[:-1]):
        inner = table.setdefault(part, {})
        if isinstance(inner, str):
            inner = table[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"override: expected a table at '{'.'.join(parts[: i + 1])}', got {inner!r} ('{text}')")
        table = inner
    new = parse_value(value.strip())
    if parts[-1] == "name" and "options" in parts and table.get("name") != new:
        table.clear()
    table[parts[-1]] = new


def dump(table: Mapping[str, Any], at: str = "") -> str:
    """Write nested tables as TOML; keys with the value None are left out.

    Args:
        table: The tables.
        at: Prefix of the keys, for the recursion.

    Returns:
        The text.

    Raises:
        ConfigError: If a value has no form in TOML.

    Example:
        >>> print(dump({"seed": 1, "model": {"name": "capsnet", "options": {}}}))
        seed = 1
        <BLANKLINE>
        [model]
        name = "capsnet"
        <BLANKLINE>
        [model.options]
    """
    plain = {key: value for key, value in table.items() if value is not None and not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value, at + key)}" for key, value in plain.items()]
    blocks = ["\n".join(lines)] if lines else []
    for key, inner in table.items():
        if isinstance(inner, Mapping):
            name = at + _key(key)
            body = dump(inner, f"{name}.")
            blocks.append(f"[{name}]" + ("\n" if body and not body.startswith("[") else "\n\n" if body else "") + body)
    return "\n\n".join(blocks)


def _key(key: str) -> str:
    bare = key and all(char.isascii() and (char.isalnum() or char in "-_") for char in key)
    return key if bare else _string(key)


def _string(text: str) -> str:
    # JSON escapes a string as TOML does, except for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, at: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(_value(item, at) for item in value) + "]"
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item, at)}" for key, item in value.items()) + "}"
    raise ConfigError(f"{at}: expected a string, number, list or table, got {value!r}")
