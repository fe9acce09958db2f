"""The search space of a sweep: which values of a recipe vary, and over what."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from torchcaps.config import parse_value
from torchcaps.errors import ConfigError

# Kinds of ranges on the command line: whether they are of whole numbers, and whether their scale is logarithmic.
KINDS = {"uniform": (False, False), "log": (False, True), "int": (True, False), "logint": (True, True)}
_RANGE = re.compile(r"\s*([A-Za-z]\w*)\((.*)\)\s*")


@dataclass(frozen=True)
class Dimension:
    """One value of the recipe that varies.

    Args:
        key: Its key, such as `optim.lr`.
        choices: The values as they are written in a recipe; empty for a range.
        kind: `choice`, or the kind of a range: `uniform`, `log`, `int` or `logint`.
        low: Smallest value of a range.
        high: Largest value of a range.
    """

    key: str
    choices: list[str]
    kind: str = "choice"
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> list[str]:
        """The choices, or both ends of the range, as they are written in a recipe."""
        return self.choices or [repr(self.low), repr(self.high)]


def parse_space(overrides: Sequence[str]) -> tuple[list[Dimension], list[str]]:
    """Split `key=value` arguments into the dimensions of a sweep and plain overrides.

    `key=a,b,c` chooses between values, `key=log(1e-4,1e-2)` is a range on a logarithmic scale, `key=uniform(0,0.5)` one
    on a linear scale, and `int(1,5)` and `logint(16,256)` are those of whole numbers.

    Args:
        overrides: The arguments.

    Returns:
        The dimensions, and the arguments with one value.

    Raises:
        ConfigError: If a range is not valid, or a key is given twice.

    Example:
        >>> dimensions, plain = parse_space(["optim.lr=log(1e-4,1e-2)", "model.options.routing.iters=1,2", "seed=3"])
        >>> [dimension.kind for dimension in dimensions], dimensions[1].choices, plain
        (['log', 'choice'], ['1', '2'], ['seed=3'])
    """
    dimensions: list[Dimension] = []
    plain: list[str] = []
    for text in overrides:
        key, _, value = text.partition("=")
        dimension = _dimension(key.strip(), value)
        if dimension is None:
            plain.append(text)
            continue
        if any(dimension.key == other.key for other in dimensions):
            raise ConfigError(f"{dimension.key}: expected one range or list of values, got two")
        dimensions.append(dimension)
    return dimensions, plain


def combinations(dimensions: Sequence[Dimension]) -> list[tuple[str, ...]] | None:
    """Return all combinations of choices, or None if there is a range."""
    if any(not dimension.choices for dimension in dimensions):
        return None
    return list(product(*(dimension.choices for dimension in dimensions)))


def _dimension(key: str, value: str) -> Dimension | None:
    # A list or a table in TOML contains commas too.
    if not isinstance(parse_value(value.strip()), str):
        return None
    found = _RANGE.fullmatch(value)
    if found is not None and found[1] in KINDS:
        return _range(key, found[1], found[2])
    choices = [choice.strip() for choice in _split(value)]
    if len(choices) < 2:
        return None
    if not all(choices) or len(set(choices)) < len(choices):
        raise ConfigError(f"{key}: expected different values between commas, got '{value}'")
    return Dimension(key, choices)


def _range(key: str, kind: str, inner: str) -> Dimension:
    whole, log = KINDS[kind]
    ends = [parse_value(end.strip()) for end in inner.split(",")]
    types = (int,) if whole else (int, float)
    numbers = [end for end in ends if type(end) in types and math.isfinite(end)]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1] or (log and numbers[0] <= 0):
        positive = " above 0" if log else ""
        number = "whole numbers" if whole else "numbers"
        raise ConfigError(
            f"{key}: expected {kind}(LOW,HIGH) with {number}{positive}, LOW below HIGH, got '{kind}({inner})'"
        )
    low, high = numbers
    return Dimension(key, [], kind, low if whole else float(low), high if whole else float(high))


def _split(text: str) -> list[str]:
    """Split at commas that are not inside of brackets or quotes.

    >>> _split('[1, 2],"a,b",c')
    ['[1, 2]', '"a,b"', 'c']
    """
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        depth += (char in "[{(") - (char in "]})") if not quote else 0
        if char == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return parts
