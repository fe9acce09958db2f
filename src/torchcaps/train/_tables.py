"""Tables: from TOML to frozen dataclasses with every mistake named at once, and back to TOML."""

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
_WORDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def build(cls: type[T], table: Mapping[str, Any], problems: list[str], at: str = "") -> T | None:
    """Make a dataclass from a table; what is wrong with it is added to `problems`, and then the result is None.

    A field may carry the metadata `least` (smallest value allowed) or `above` (a bound that is not allowed itself).
    """
    before = len(problems)
    known = {field.name: field for field in fields(cls)}  # pyright: ignore[reportArgumentType]
    hints = get_type_hints(cls)
    problems += [f"unknown key '{at}{key}'{nearest(key, known)}" for key in table if key not in known]
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in table:
            values[name] = _check(table[name], hints[name], field.metadata, problems, at + name)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{at}{name}: expected {_words(hints[name])}, got nothing (the key is missing)")
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
            return build(hint, value, problems, f"{at}.")
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
    return float(value) if hint is float and type(value) is int else value


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    # A bool is an int to Python, but not to whoever wrote the recipe.
    return type(value) is (origin or hint)


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(get_args(hint))
    if origin in (Union, UnionType):
        return " or ".join(_words(option) for option in get_args(hint) if option is not NoneType)
    return _WORDS.get(origin or hint, "a table")


def parse_value(text: str) -> Any:
    """Read a TOML value; what is none, and what would be a date, is a string as it stands.

    >>> parse_value("0.01"), parse_value("[1, 2]"), parse_value("my/folder")
    (0.01, [1, 2], 'my/folder')
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if isinstance(value, date | datetime | time) else value


def override(table: dict[str, Any], text: str) -> None:
    """Set `a.b.c=value` in nested tables; a string where a table is needed is taken as its `name`.

    A new name inside of `options` starts its table anew, for what else stood there were the options of the old name.

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
    """Write nested tables as TOML; None is left out, for a key that is not there means the same.

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
    # JSON's escapes are TOML's, but for one character that TOML does not allow as it is.
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
