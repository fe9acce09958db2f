"""Options of a routing as one line of text, the form in which an operator takes them."""

from __future__ import annotations

import ast
import functools
import inspect
import math
from typing import Any

from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops._routing import Routing


def unencodable_option(params: dict[str, Any]) -> str | None:
    """Return the name of the first option that is neither a tensor nor plain data, or None."""
    for name, value in params.items():
        if not isinstance(value, Tensor) and not _is_plain(value):
            return name
    return None


def encode_options(options: dict[str, Any]) -> str:
    """Return options as the text of a dictionary; a named tuple becomes a dictionary of its fields."""
    return "{" + ", ".join(f"{name!r}: {_fields(value)!r}" for name, value in options.items()) + "}"


def decode_options(routing: Routing, text: str) -> dict[str, Any]:
    """Return the options that `encode_options` wrote. A named tuple is one of the type of the option's default."""
    options = dict(_parse(text))
    routing.check_options(options)
    for name, value in options.items():
        if isinstance(value, dict):
            default = inspect.signature(routing.steps).parameters[name].default
            if set(value) != set(getattr(default, "_fields", ())):
                raise ConfigError(f"options: expected the fields of '{name}', got {value}")
            options[name] = type(default)(**value)
    return options


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> dict[str, Any]:
    try:
        options = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        options = None
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise ConfigError(f"options: expected the text of a dictionary, got '{text[:80]}'")
    return options


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _fields(value: Any) -> Any:
    return {name: getattr(value, name) for name in value._fields} if hasattr(value, "_fields") else value
