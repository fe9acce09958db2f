"""Signals in `.ts` files, the text format of the UCR and UEA archives of time series.

A header of lines such as `@classLabel true walking running`, then `@data`, then one line per signal: the values of each
channel separated by commas, channels and the class separated by colons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchcaps.data.readers._limited_io import open_unzipped, read_lines, unpacked_limit
from torchcaps.errors import DataError

MAX_BYTES = 500_000_000
# A value of two characters takes 60 bytes while its line is split, and a signal 300 bytes beside its values.
MAX_LINE, MAX_SIGNALS, MAX_CLASSES = 20_000_000, 1_000_000, 10_000
_SHOWN = 60


class Signals(NamedTuple):
    """The content of a `.ts` file.

    Attributes:
        series: One array [C, T] of float32 per signal; all have the same channels, lengths may differ.
        labels: Class index of each signal.
        class_names: Names of the classes, in the order of the header.
    """

    series: list[np.ndarray]
    labels: list[int]
    class_names: tuple[str, ...]


def read_ts(path: str | Path) -> Signals:
    """Read a `.ts` file, gzipped or not.

    Args:
        path: The file.

    Returns:
        The signals and their classes.

    Raises:
        DataError: If the file is no such file, has no classes, time stamps, missing values, values that are not finite,
            empty signals, or signals with different numbers of channels.

    Example:
        >>> read_ts("GunPoint_TRAIN.ts").class_names  # doctest: +SKIP
        ('1', '2')
    """
    path = Path(path)
    lines = _lines(path)
    class_names = _read_header(path, lines)
    index = {name: k for k, name in enumerate(class_names)}
    series: list[np.ndarray] = []
    labels: list[int] = []
    for number, line in lines:
        place = f"{path}, line {number}"
        if len(series) == MAX_SIGNALS:
            raise DataError(f"{place}: expected at most {MAX_SIGNALS:,} signals, got more")
        *channels, label = line.split(":")
        if label.strip() not in index:
            names = ", ".join(class_names)[:_SHOWN]
            raise DataError(f"{place}: expected a class of the header ({names}), got '{label.strip()[:_SHOWN]}'")
        series.append(_read_channels(place, channels))
        if len(series[-1]) != len(series[0]):
            raise DataError(f"{place}: expected {len(series[0])} channels, got {len(series[-1])}")
        labels.append(index[label.strip()])
    if not series:
        raise DataError(f"{path}: expected at least one signal after @data, got 0")
    return Signals(series, labels, class_names)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line that is neither empty nor a comment."""
    with open_unzipped(path) as file:
        limit = unpacked_limit(path.stat().st_size, MAX_BYTES)
        for number, line in read_lines(file, path, MAX_LINE, limit):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: expected text, got byte {error.start} that is not UTF-8"
                ) from None
            if text.strip() and not text.startswith(("#", "%")):
                yield number, text


def _read_header(path: Path, lines: Iterator[tuple[int, str]]) -> tuple[str, ...]:
    """Read all lines up to @data, and return the names of the classes."""
    class_names: tuple[str, ...] = ()
    number = 0
    for number, line in lines:
        words = line.split()
        key = words[0].lower()
        if not key.startswith("@"):
            raise DataError(f"{path}, line {number}: expected a line of the header or @data, got '{_shown(line)}'")
        if key == "@timestamps" and words[1:2] != ["false"]:
            raise DataError(f"{path}, line {number}: expected values without time stamps, got '{_shown(line)}'")
        if key == "@targetlabel" and words[1:2] == ["true"]:
            raise DataError(f"{path}, line {number}: expected classes, got targets of a regression")
        if key == "@classlabel" and words[1:2] == ["true"]:
            class_names = tuple(dict.fromkeys(words[2:]))
        if key == "@data":
            if not 2 <= len(class_names) <= MAX_CLASSES:
                raise DataError(
                    f"{path}: expected @classLabel true with 2 to {MAX_CLASSES:,} classes, got {len(class_names):,}"
                )
            return class_names
    raise DataError(f"{path}: expected a .ts file with a line @data, but its {number:,} lines have none")


def _shown(line: str) -> str:
    return line.strip()[:_SHOWN]


def _read_channels(place: str, channels: Sequence[str]) -> np.ndarray:
    """Return the values of one signal, float32 [C, T]."""
    if not channels:
        raise DataError(f"{place}: expected values, a colon and a class, but there is no colon")
    rows: list[np.ndarray] = []
    for k, text in enumerate(channels, 1):
        fields = text.split(",") if text.strip() else []
        if not fields:
            raise DataError(f"{place}: expected at least one value in channel {k}, got 0 (a signal of length 0)")
        try:
            # A number beyond the range of float32 becomes infinite, and is refused below.
            with np.errstate(over="ignore"):
                rows.append(np.array(fields, np.float64).astype(np.float32))
        except ValueError:
            wrong = next((field.strip() for field in fields if not _is_number(field)), fields[0])
            hint = " (a missing value; fill it in before)" if wrong == "?" else ""
            raise DataError(f"{place}: expected numbers in channel {k}, got '{wrong[:_SHOWN]}'{hint}") from None
        if not np.isfinite(rows[-1]).all():
            wrong = fields[int(np.flatnonzero(~np.isfinite(rows[-1]))[0])].strip()
            raise DataError(f"{place}: expected finite numbers in channel {k}, got '{wrong[:_SHOWN]}'")
        if len(rows[-1]) != len(rows[0]):
            raise DataError(
                f"{place}: expected {len(rows[0])} values in every channel, got {len(rows[-1])} in channel {k}"
            )
    return np.stack(rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
