"""Descriptions of arguments and attributes, read from Google-style docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

_NAME = re.compile(r" {4}(\w+): (.*)")


def described_names(item: Any) -> dict[str, str]:
    """Return the description of each argument or attribute in a docstring.

    Args:
        item: A class or function.

    Returns:
        The descriptions on one line each, by name; empty without a section `Args` or `Attributes`.

    Example:
        >>> described_names(described_names)
        {'item': 'A class or function.'}
    """
    found: dict[str, str] = {}
    name, inside = "", False
    for line in (inspect.getdoc(item) or "").splitlines():
        if line and not line.startswith(" "):
            inside = line in ("Args:", "Attributes:")
        elif inside and (match := _NAME.fullmatch(line)):
            name = match[1]
            found[name] = match[2]
        elif inside and line.strip():
            found[name] += f" {line.strip()}"
    return found
