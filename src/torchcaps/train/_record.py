"""The content of run.json, checked: it may be damaged, or come from somebody else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

STATUSES = ("running", "stopped", "failed", "finished")
# The largest of `create_model`; importing them would import torch.
MAX_SIDE, MAX_CLASSES = 2**20, 2**20


def record_problem(record: Any) -> str | None:
    """Return what is wrong with a record, or None.

    Args:
        record: Content of run.json.

    Returns:
        The first problem.

    Example:
        >>> record_problem({"status": "running"}), record_problem({"status": "running", "seconds": "x"})
        (None, "seconds is 'x'")
    """
    if not isinstance(record, dict):
        return "no JSON object"
    for name in ("status", *(_FINISHED if record.get("status") == "finished" else ())):
        if name not in record:
            return f"no {name}"
    for name, is_valid in _FIELDS.items():
        if name in record and not is_valid(record[name]):
            return f"{name} is {record[name]!r}"
    names = record.get("class_names")
    if names is not None and len(names) != record.get("num_classes", len(names)):
        return f"{len(names)} class_names for {record['num_classes']} classes"
    return None


def _is_count(value: Any, least: int = 0, most: int = 2**63 - 1) -> bool:
    return type(value) is int and least <= value <= most


def _is_number(value: Any) -> bool:
    # NaN is the loss of a run that diverged.
    return type(value) is float or _is_count(value, -(2**63))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


def _is_results(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(value.get(name), Mapping) for name in ("best", "final")):
        return False
    numbers = [each for name, each in value.items() if name not in ("best", "final")]
    return all(map(_is_number, [*numbers, *value["best"].values(), *value["final"].values()]))


def _is_extension(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_count(value.get("to"), 1)


# Keys of a finished run; other keys are optional.
_FINISHED = ("image_shape", "num_classes", "num_labels", "class_names", "parameters", "seconds", "results")
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "status": lambda value: value in STATUSES,
    "image_shape": lambda value: _list_of(lambda side: _is_count(side, 1, MAX_SIDE))(value) and len(value) in (2, 3, 4),
    "num_classes": lambda value: _is_count(value, 1, MAX_CLASSES),
    "num_labels": lambda value: _is_count(value, 1, MAX_CLASSES),
    "class_names": _list_of(_is_text),
    "parameters": _is_count,
    "seconds": lambda value: _is_number(value) and 0 <= value < math.inf,
    "results": _is_results,
    "resumed": _list_of(_is_text),
    "extended": _list_of(_is_extension),
    "machine": lambda value: isinstance(value, Mapping),
    "versions": lambda value: isinstance(value, Mapping),
    "commit": lambda value: value is None or _is_text(value),
    "finished": _is_text,
    "signal": _is_text,
    "mlflow_run": _is_text,
    "recipe_sha256": _is_text,
}
