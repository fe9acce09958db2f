"""diagnostics.csv: the diagnostics of every epoch, one number per line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from torchcaps._csv import read_rows

# Epoch, layer, iteration (or None), measure, value. A plain tuple, because checkpoints contain it.
Row = tuple[int, str, int | None, str, float]

# Parser of each column.
_COLUMNS: dict[str, Callable[[str], Any]] = {
    "epoch": int,
    "layer": str,
    "iteration": lambda text: int(text) if text else None,
    "measure": str,
    "value": float,
}


def to_csv(rows: Sequence[Row]) -> str:
    """Write rows as CSV with a header.

    Args:
        rows: The rows, in order.

    Returns:
        The text of the file.

    Example:
        >>> to_csv([(1, "head", 3, "entropy", 0.5), (1, "head", None, "dead", 0.0)]).splitlines()
        ['epoch,layer,iteration,measure,value', '1,head,3,entropy,0.5', '1,head,,dead,0.0']
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([tuple(_COLUMNS), *rows])
    return text.getvalue()


def from_csv(text: str) -> dict[str, list[Any]]:
    """Read the columns of a CSV text.

    Args:
        text: The text that `to_csv` wrote.

    Returns:
        The values of each column by its name.

    Raises:
        ValueError: If a column is missing or a value cannot be parsed.

    Example:
        >>> from_csv("epoch,layer,iteration,measure,value\\n1,head,,dead,0.0\\n")
        {'epoch': [1], 'layer': ['head'], 'iteration': [None], 'measure': ['dead'], 'value': [0.0]}
    """
    try:
        rows, _ = read_rows(text)
        return {name: [parse(row[name]) for row in rows] for name, parse in _COLUMNS.items()}
    except (KeyError, TypeError, csv.Error) as error:
        raise ValueError(f"expected the columns {', '.join(_COLUMNS)}, got others ({error})") from None
