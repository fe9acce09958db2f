"""Results as JSON: dataclasses to files and back."""

from __future__ import annotations

import dataclasses
import json
import types
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from torchcaps._files import read_bounded, write_text
from torchcaps.errors import DataError

T = TypeVar("T")


def write_json(path: Path, result: Any) -> None:
    """Replace a file by a result, atomically.

    Args:
        path: File to write.
        result: A result record.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "statistic.json"
        >>> from torchcaps.experiments import Statistic
        >>> write_json(file, Statistic(0.5, None, 1))
        >>> read_json(Statistic, file)
        Statistic(mean=0.5, std=None, count=1)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(dataclasses.asdict(result), indent=1) + "\n")


def read_json(cls: type[T], path: Path) -> T:
    """Read a result that `write_json` wrote.

    Args:
        cls: Class of the result.
        path: The file.

    Returns:
        The result.

    Raises:
        DataError: If the file is missing, no JSON, or no result of this class.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "statistic.json"
        >>> from torchcaps.experiments import Statistic
        >>> write_json(file, Statistic(0.5, 0.1, 3))
        >>> read_json(Statistic, file).count
        3
    """
    try:
        return from_table(cls, json.loads(read_bounded(path).decode("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: expected a {cls.__name__} as JSON, got {type(error).__name__}: {error}") from None


def read_cache(path: Path) -> dict[str, Any]:
    """Read a JSON object of values that can be computed again.

    Args:
        path: The file.

    Returns:
        The object; empty if the file is missing or damaged.

    Example:
        >>> read_cache(Path("no such file"))
        {}
    """
    try:
        cache = json.loads(read_bounded(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cache if isinstance(cache, dict) else {}


def from_table(cls: type[T], table: dict[str, Any]) -> T:
    """Build a dataclass from a table of JSON values, with the dataclasses nested in it."""
    hints = get_type_hints(cls)
    names = [each.name for each in dataclasses.fields(cls)]  # pyright: ignore[reportArgumentType]
    unknown = set(table) - set(names)
    if unknown:
        raise KeyError(f"unknown key '{min(unknown)}'")
    return cls(**{name: _value(hints[name], table[name]) for name in names if name in table})


def _value(hint: Any, value: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        nested = [each for each in args if dataclasses.is_dataclass(each)]
        return _value(nested[0], value) if nested and value is not None else value
    if origin is list:
        return [_value(args[0], item) for item in value]
    if origin is dict:
        return {key: _value(args[1], item) for key, item in value.items()}
    return from_table(hint, value) if dataclasses.is_dataclass(hint) else value  # pyright: ignore[reportArgumentType]
