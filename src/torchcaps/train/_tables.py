"""The tables of a run: metrics.csv and diagnostics.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchcaps._csv import read_rows
from torchcaps._files import read_bounded, write_text
from torchcaps.diagnostics.history import Row, from_csv, to_csv
from torchcaps.errors import CheckpointError

METRICS, DIAGNOSTICS = "metrics.csv", "diagnostics.csv"


def metrics_text(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the content of metrics.csv.

    Args:
        rows: One row per epoch; values that a row does not have are written as NaN.

    Returns:
        The text.
    """
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    if names:
        table = csv.DictWriter(text, names, restval="nan", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return text.getvalue()


def write_metrics(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write metrics.csv.

    Args:
        folder: The run folder.
        rows: One row per epoch.
    """
    write_text(folder / METRICS, metrics_text(rows))


def write_diagnostics(folder: Path, rows: Sequence[Row]) -> None:
    """Write diagnostics.csv, unless there are none: a model without classes has no diagnostics.

    Args:
        folder: The run folder.
        rows: The measures of all epochs.
    """
    if rows:
        write_text(folder / DIAGNOSTICS, to_csv(rows))


def read_metrics(folder: Path) -> dict[str, list[float]]:
    """Read metrics.csv.

    Args:
        folder: The run folder.

    Returns:
        The columns; empty if there is no file.

    Raises:
        CheckpointError: If the file is damaged.
    """
    file = folder / METRICS
    if not file.exists():
        return {}
    try:
        rows, _ = read_rows(read_bounded(file).decode("utf-8"))
        return {name: [float(row[name]) for row in rows] for name in ("epoch", *rows[0])} if rows else {}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise CheckpointError(f"run: expected numbers in columns, got '{file}' ({error})") from None


def read_diagnostics(folder: Path) -> dict[str, list[Any]]:
    """Read diagnostics.csv.

    Args:
        folder: The run folder.

    Returns:
        The columns; empty if there is no file.

    Raises:
        CheckpointError: If the file is damaged.
    """
    file = folder / DIAGNOSTICS
    if not file.exists():
        return {}
    try:
        return from_csv(read_bounded(file).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"run: expected diagnostics, got '{file}' ({error})") from None
